"""What several tests use."""

SMALL = """
title = "Small"
question = "What do two lossy rounds take?"

[run]
duration = "5 s"
replications = { min = 3, max = 6, precision = "5 %", metric = "delay.mean" }

[hosts.client]
[hosts.server]

[links.wire]
between = ["client", "server"]
delay = "10 ms"
loss = "0 %"

[workload]
kind = "dialogue"
clients = "client"
server = "server"
transport = "tcp"
rounds = [{ request = "100 B", answer = "100 B" }]
arrivals = { kind = "poisson", rate = "20 /s" }

[[axes]]
name = "loss"
title = "Packet loss"
set = "links.wire.loss"
values = ["0 %", "5 %", "10 %"]
quick = ["0 %", "5 %"]

[[figures]]
name = "delay"
title = "Delay over loss"
x = "loss"
y = "delay.mean"
"""
