// Dialogues over one TCP connection of ns-3 with the defaults that ns-3 comes with: client -- router -- server, the first
// link with loss both ways. Parameters are pairs of name and value on the command line: `ns3-tcp loss 0.05 seed 3`. One line
// of results, as common.tcl prints it for ns-2.

#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

#include <algorithm>
#include <deque>
#include <iostream>
#include <list>
#include <map>
#include <sstream>
#include <string>
#include <vector>

using namespace ns3;

namespace
{

// What the command line may change.
std::map<std::string, std::string> parameters{
    {"loss", "0"},          // of each direction, from the measured time on
    {"seed", "1"},          //
    {"rate", "10"},         // dialogues a second
    {"warmup", "20"},       // seconds, as all times
    {"duration", "100"},    //
    {"drain", "200"},       //
    {"delay", "0.010"},     // of the first link
    {"bandwidth", "1.5Mb/s"}, //
    {"queue", "49"},        // packets that wait beside the one that is on the link
    {"request", "200"},     // bytes
    {"answer", "200"},      //
    {"retries", "1000000"}, // DataRetries: ns-3 gives up after 6, which would end a run and not measure it
    {"timestamps", "1"},    // Timestamp
    {"up", ""},             // packets of the client's that are lost, from 0, in place of `loss`
    {"down", ""},           // of the server's
    {"messages", "0"},      // so many at fixed times in place of a Poisson process
    {"gap", "0"},           // seconds between two of them
    {"each", "0"},          // print the delay of every dialogue
    {"trace", "0"},         // print every segment
};

double
number(const std::string& name)
{
    return std::stod(parameters.at(name));
}

uint32_t
bytes(const std::string& name)
{
    return static_cast<uint32_t>(number(name));
}

// Writes all that it is given, and counts what comes.
class Endpoint
{
  public:
    void attach(Ptr<Socket> socket)
    {
        m_socket = socket;
        m_socket->SetRecvCallback(MakeCallback(&Endpoint::read, this));
    }
    void write(uint32_t length)
    {
        if (m_socket->Send(Create<Packet>(length)) != static_cast<int>(length))
        {
            std::cerr << "a write was refused at " << Simulator::Now().GetSeconds() << " s\n";
            std::exit(1);
        }
    }
    // Whether another message of this length has come.
    bool take(uint32_t length)
    {
        bool whole = m_came >= length;
        m_came -= whole ? length : 0;
        return whole;
    }
    Callback<void> onData;

  private:
    void read(Ptr<Socket>)
    {
        while (Ptr<Packet> packet = m_socket->Recv())
        {
            if (packet->GetSize() == 0)
            {
                break;
            }
            m_came += packet->GetSize();
        }
        onData();
    }
    Ptr<Socket> m_socket;
    uint64_t m_came = 0;
};

Endpoint client;
Endpoint server;
Ptr<ExponentialRandomVariable> gaps;
// When each dialogue began. They end in the order in which they began.
std::deque<double> open;
std::vector<double> delays;
uint64_t packets = 0;
uint64_t packetsBefore = 0;

void
ask()
{
    open.push_back(Simulator::Now().GetSeconds());
    client.write(bytes("request"));
}

void
arrive()
{
    ask();
    Time next = Seconds(gaps->GetValue());
    if ((Simulator::Now() + next).GetSeconds() < number("warmup") + number("duration"))
    {
        Simulator::Schedule(next, &arrive);
    }
}

void
answer()
{
    while (server.take(bytes("request")))
    {
        server.write(bytes("answer"));
    }
}

void
end()
{
    while (client.take(bytes("answer")))
    {
        double began = open.front();
        open.pop_front();
        if (began >= number("warmup"))
        {
            delays.push_back(Simulator::Now().GetSeconds() - began);
            if (number("each") > 0)
            {
                std::cout << "each " << delays.size() - 1 << " " << delays.back() << "\n";
            }
        }
    }
}

void
count(Ptr<const Packet>)
{
    ++packets;
}

void
trace(std::string who, Ptr<const Packet> packet)
{
    Ptr<Packet> copy = packet->Copy();
    PppHeader ppp;
    Ipv4Header ip;
    TcpHeader tcp;
    copy->RemoveHeader(ppp);
    copy->RemoveHeader(ip);
    copy->RemoveHeader(tcp);
    std::cout << Simulator::Now().GetNanoSeconds() << " " << who << " " << tcp.GetSequenceNumber() << "+"
              << copy->GetSize() << " ack " << tcp.GetAckNumber() << " win " << tcp.GetWindowSize();
    if (tcp.HasOption(TcpOption::SACK))
    {
        std::cout << " sack";
        for (auto& block : DynamicCast<const TcpOptionSack>(tcp.GetOption(TcpOption::SACK))->GetSackList())
        {
            std::cout << " " << block.first << "-" << block.second;
        }
    }
    if (tcp.HasOption(TcpOption::TS))
    {
        auto times = DynamicCast<const TcpOptionTS>(tcp.GetOption(TcpOption::TS));
        std::cout << " ts " << times->GetTimestamp() << " " << times->GetEcho();
    }
    std::cout << "\n";
}

// Loses what arrives at a device, behind the other one's queue and the link.
void
lose(Ptr<NetDevice> device, const std::string& list)
{
    std::istringstream words(parameters.at(list));
    std::list<uint32_t> lost;
    for (uint32_t number; words >> number;)
    {
        lost.push_back(number);
    }
    if (!lost.empty())
    {
        Ptr<ReceiveListErrorModel> model = CreateObject<ReceiveListErrorModel>();
        model->SetList(lost);
        device->SetAttribute("ReceiveErrorModel", PointerValue(model));
        return;
    }
    Ptr<RateErrorModel> model = CreateObject<RateErrorModel>();
    model->SetUnit(RateErrorModel::ERROR_UNIT_PACKET);
    // The connection opens without loss.
    model->SetRate(0);
    Simulator::Schedule(Seconds(number("warmup")), &RateErrorModel::SetRate, model, number("loss"));
    device->SetAttribute("ReceiveErrorModel", PointerValue(model));
}

Ptr<NetDevice>
connect(NodeContainer nodes, const std::string& rate, Time delay, const std::string& queue, const char* network)
{
    PointToPointHelper link;
    link.SetDeviceAttribute("DataRate", StringValue(rate));
    link.SetChannelAttribute("Delay", TimeValue(delay));
    link.SetQueue("ns3::DropTailQueue", "MaxSize", StringValue(queue + "p"));
    NetDeviceContainer devices = link.Install(nodes);
    Ipv4AddressHelper addresses;
    addresses.SetBase(network, "255.255.255.0");
    addresses.Assign(devices);
    // The queue is the device's alone.
    TrafficControlHelper().Uninstall(devices);
    return devices.Get(0);
}

} // namespace

int
main(int argc, char** argv)
{
    for (int i = 1; i + 1 < argc; i += 2)
    {
        if (parameters.find(argv[i]) == parameters.end())
        {
            std::cerr << "no parameter is named '" << argv[i] << "'\n";
            return 2;
        }
        parameters[argv[i]] = argv[i + 1];
    }
    Config::SetDefault("ns3::TcpSocket::DataRetries", UintegerValue(bytes("retries")));
    Config::SetDefault("ns3::TcpSocketBase::Timestamp", BooleanValue(number("timestamps") > 0));
    // What waits to be sent is bounded by nothing on the other side either.
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(1 << 30));
    RngSeedManager::SetSeed(bytes("seed"));

    NodeContainer nodes(3);
    InternetStackHelper().Install(nodes);
    Ptr<NetDevice> first = connect(NodeContainer(nodes.Get(0), nodes.Get(1)),
                                   parameters["bandwidth"],
                                   Seconds(number("delay")),
                                   parameters["queue"],
                                   "10.0.1.0");
    connect(NodeContainer(nodes.Get(1), nodes.Get(2)), "100Mb/s", Seconds(0), "1000", "10.0.2.0");
    Ipv4GlobalRoutingHelper::PopulateRoutingTables();
    lose(nodes.Get(1)->GetDevice(1), "up");
    lose(first, "down");
    for (uint32_t i : {0, 2})
    {
        Ptr<NetDevice> device = nodes.Get(i)->GetDevice(1);
        device->TraceConnectWithoutContext("MacTx", MakeCallback(&count));
        if (number("trace") > 0)
        {
            std::string who = i == 0 ? "client" : "server";
            device->TraceConnectWithoutContext("PhyTxBegin", MakeBoundCallback(&trace, who));
        }
    }

    Ipv4Address address = nodes.Get(2)->GetObject<Ipv4>()->GetAddress(1, 0).GetLocal();
    Ptr<Socket> listener = Socket::CreateSocket(nodes.Get(2), TcpSocketFactory::GetTypeId());
    listener->Bind(InetSocketAddress(Ipv4Address::GetAny(), 3868));
    listener->Listen();
    listener->SetAcceptCallback(
        MakeNullCallback<bool, Ptr<Socket>, const Address&>(),
        Callback<void, Ptr<Socket>, const Address&>([](Ptr<Socket> socket, const Address&) { server.attach(socket); }));
    server.onData = MakeCallback(&answer);
    client.onData = MakeCallback(&end);
    Ptr<Socket> asking = Socket::CreateSocket(nodes.Get(0), TcpSocketFactory::GetTypeId());
    client.attach(asking);
    asking->Connect(InetSocketAddress(address, 3868));

    if (number("messages") > 0)
    {
        // The first opens, and is counted by nobody.
        Simulator::Schedule(Seconds(0.5), &ask);
        for (uint32_t i = 0; i < bytes("messages"); ++i)
        {
            Simulator::Schedule(Seconds(number("warmup") + i * number("gap")), &ask);
        }
    }
    else
    {
        gaps = CreateObject<ExponentialRandomVariable>();
        gaps->SetAttribute("Mean", DoubleValue(1 / number("rate")));
        // Not before the connection is open.
        Simulator::Schedule(Seconds(0.1 + gaps->GetValue()), &arrive);
    }
    Simulator::Schedule(Seconds(number("warmup")), +[]() { packetsBefore = packets; });
    uint64_t within = 0;
    Simulator::Schedule(Seconds(number("warmup") + number("duration")), [&within]() { within = packets; });
    Simulator::Stop(Seconds(number("warmup") + number("duration") + number("drain")));
    Simulator::Run();

    std::sort(delays.begin(), delays.end());
    double sum = 0;
    for (double delay : delays)
    {
        sum += delay;
    }
    std::ostringstream line;
    line.precision(10);
    line << "scenario=ns3-tcp";
    for (auto& [name, value] : parameters)
    {
        std::string joined = value;
        std::replace(joined.begin(), joined.end(), ' ', ',');
        line << " " << name << "=" << joined;
    }
    size_t n = delays.size();
    line << " dialogues=" << n << " failed=" << open.size();
    if (n > 0)
    {
        line << " mean=" << sum / n << " median=" << delays[(n - 1) / 2] << " p95=" << delays[(n - 1) * 95 / 100]
             << " packets=" << static_cast<double>(within - packetsBefore) / n;
    }
    std::cout << line.str() << "\n";
    Simulator::Destroy();
    return 0;
}
