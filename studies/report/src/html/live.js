"use strict";
(() => {
  const part = document.getElementById("live");
  const data = JSON.parse(document.getElementById("live-data").textContent);
  const get = (name) => part.querySelector(`[data-live="${name}"]`);
  const say = (text) => (get("state").textContent = text);
  const make = (tag, attributes, ...children) => {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  };
  const number = (value) => Number(value.toPrecision(4)).toString();
  // An interval has two significant digits, and its mean as many decimals.
  const interval = (mean, half) => {
    if (!half) return number(mean);
    const decimals = Math.min(12, Math.max(0, 1 - Math.floor(Math.log10(half))));
    return `${mean.toFixed(decimals)} ± ${half.toFixed(decimals)}`;
  };

  // Where the reader is: an index into each axis's values.
  const at = data.axes.map(() => 0);
  const settings = () => data.axes.map((axis, i) => `${axis.name}=${axis.values[at[i]]}`);
  const stored = (places) =>
    data.points.find((p) => places.every((place, i) => p.at[i] === place));
  let along = Math.max(0, data.axes.findIndex((axis) => axis.numbers && axis.values.length > 1));
  let metric = data.metrics[0];
  let rows = "";
  let estimates = [];
  let next = 0;
  let running = false;
  let worker = null;
  let ready = null;

  const bytes = () => {
    const text = atob(document.getElementById("live-module").textContent);
    return Uint8Array.from(text, (c) => c.charCodeAt(0));
  };
  const start = () => {
    ready ??= new Promise((resolve, reject) => {
      const source = document.getElementById("live-worker").textContent;
      worker = new Worker(URL.createObjectURL(new Blob([source], { type: "text/javascript" })));
      worker.onmessage = ({ data: answer }) => {
        worker.onmessage = null;
        if (answer.ready?.version === data.version) resolve();
        else if (answer.ready) reject(`This report needs usher ${data.version}, but its module has version ${answer.ready.version}.`);
        else reject(answer.error);
      };
      worker.onerror = (event) => reject(event.message);
      const module = bytes();
      worker.postMessage({ module, study: data.study }, [module.buffer]);
    });
    return ready;
  };
  const run = (point, replication) =>
    new Promise((resolve, reject) => {
      worker.onmessage = ({ data: answer }) => (answer.rows ? resolve(answer.rows) : reject(answer.error));
      worker.onerror = (event) => reject(event.message);
      worker.postMessage({ run: { point, replication } });
    });

  const live = () => estimates.find((e) => e.metric === metric.name);
  const draw = () => {
    const axis = data.axes[along];
    const values = axis ? axis.values : ["-"];
    const width = 640;
    const height = 220;
    const [left, right, top, bottom] = [64, 16, 12, 34];
    const known = values.map((_, i) => stored(at.map((place, a) => (a === along ? i : place)))?.estimates[metric.name]);
    const here = live();
    const ends = [];
    const end = (mean, half) => mean !== null && mean !== undefined && ends.push(mean - (half ?? 0), mean + (half ?? 0));
    known.forEach((e) => e && end(e[0], e[1]));
    if (here) end(here.mean, here.half_width);
    let [low, high] = [Math.min(0, ...ends), Math.max(...ends)];
    if (!ends.length || high === low) [low, high] = [0, high > 0 ? high : 1];
    const x = (i) => left + ((width - left - right) * (i + 0.5)) / values.length;
    const y = (v) => top + (height - top - bottom) * (1 - (v - low) / (high - low));
    const shape = [];
    for (const v of [low, (low + high) / 2, high]) {
      shape.push(`<path class="grid" d="M${left} ${y(v)}H${width - right}"/><text class="tick" text-anchor="end" x="${left - 6}" y="${y(v) + 4}">${number(v)}</text>`);
    }
    const escape = (text) => text.replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
    const step = Math.ceil(values.length / 8);
    values.forEach((value, i) => {
      if (i % step === 0) shape.push(`<text class="tick" text-anchor="middle" x="${x(i)}" y="${height - 14}">${escape(value)}</text>`);
    });
    const marked = (at, mean, half, mark) => {
      const bar = half === null || half === undefined ? "" : `<path class="interval" d="M${at} ${y(mean - half)}V${y(mean + half)}"/>`;
      return `${bar}<circle class="${mark}" cx="${at}" cy="${y(mean)}" r="4.5"/>`;
    };
    const line = known.map((e, i) => e && `${x(i)} ${y(e[0])}`).filter(Boolean);
    if (line.length > 1 && axis.numbers) shape.push(`<path class="line" d="M${line.join("L")}"/>`);
    known.forEach((e, i) => e && shape.push(marked(x(i), e[0], e[1], "mark hollow")));
    if (here && here.mean !== null) {
      // Beside what is stored, so that both are seen.
      const beside = x(axis ? at[along] : 0) + 11;
      shape.push(`<g class="here">${marked(beside, here.mean, here.half_width, "mark")}</g>`);
    }
    get("plot").innerHTML = `<svg class="figure" viewBox="0 0 ${width} ${height}" role="img" aria-label="${escape(metric.title)}">${shape.join("")}</svg>`;
  };
  const show = () => {
    const unit = metric.unit ? ` ${metric.unit}` : "";
    const words = (e) => (e && e[0] !== null ? `${interval(e[0], e[1])}${unit}, ${e[2]} replications` : "none");
    const here = live();
    get("here").textContent = here ? words([here.mean, here.half_width, here.n]) : "none yet";
    get("stored").textContent = words(stored(at)?.estimates[metric.name]);
    get("rows").textContent = rows;
    draw();
  };

  const forget = () => {
    [rows, estimates, next] = ["", [], 0];
  };
  const go = async () => {
    if (running) return;
    running = true;
    get("run").textContent = "Stop";
    try {
      say("Loading the simulator.");
      await start();
      while (running && next < Number(get("most").value)) {
        const point = settings();
        say(`Running replication ${next + 1}.`);
        const begun = performance.now();
        const answer = await run(point, next);
        // The reader has moved on meanwhile.
        if (point.join() !== settings().join()) continue;
        // The first line names the columns.
        rows += rows ? answer.csv.slice(answer.csv.indexOf("\n") + 1) : answer.csv;
        estimates = answer.estimates;
        next += 1;
        get("time").textContent = `${number((performance.now() - begun) / 1000)} s`;
        show();
      }
      say(`${next} replications at this point.`);
    } catch (why) {
      say(String(why));
      part.classList.add("failed");
    }
    running = false;
    get("run").textContent = "Run";
  };

  data.axes.forEach((axis, i) => {
    const slider = make("input", { type: "range", min: 0, max: axis.values.length - 1, value: 0, step: 1, id: `live-axis-${i}` });
    const value = make("output", { for: slider.id });
    const move = () => {
      at[i] = Number(slider.value);
      value.textContent = axis.values[at[i]];
      slider.setAttribute("aria-valuetext", axis.values[at[i]]);
    };
    move();
    slider.addEventListener("input", () => {
      move();
      if (axis.values.length > 1) along = i;
      forget();
      show();
      go();
    });
    if (axis.values.length === 1) slider.disabled = true;
    get("axes").append(make("label", { for: slider.id }, axis.title), slider, value);
  });
  for (const each of data.metrics) {
    get("metric").append(make("option", { value: each.name }, `${each.title}${each.unit ? ` [${each.unit}]` : ""}`));
  }
  get("metric").addEventListener("change", () => {
    metric = data.metrics[get("metric").selectedIndex];
    show();
  });
  get("run").addEventListener("click", () => {
    if (running) running = false;
    else go();
  });
  show();
})();
