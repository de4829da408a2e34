"use strict";
(() => {
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  document.documentElement.classList.add("js");

  const tip = document.getElementById("tip");
  let near = null;
  const leave = () => {
    if (near) near.classList.remove("near");
    near = null;
    tip.hidden = true;
  };
  const read = (svg, event) => {
    let best = null;
    let reach = 28;
    for (const mark of all(".series:not(.off) [data-tip]", svg)) {
      const box = mark.getBoundingClientRect();
      const distance = Math.hypot(
        event.clientX - box.x - box.width / 2,
        event.clientY - box.y - box.height / 2,
      );
      if (distance < reach) [best, reach] = [mark, distance];
    }
    if (best !== near) leave();
    if (!best) return;
    near = best;
    best.classList.add("near");
    tip.textContent = best.dataset.tip;
    tip.hidden = false;
    const box = best.getBoundingClientRect();
    const left = Math.min(box.right + 12, innerWidth - tip.offsetWidth - 8);
    const above = box.top - tip.offsetHeight - 8;
    tip.style.left = `${Math.max(8, left)}px`;
    tip.style.top = `${above > 8 ? above : box.bottom + 8}px`;
  };
  addEventListener("scroll", leave, { passive: true });

  const save = (name, type, text) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };

  const alone = (svg, title) => {
    const copy = svg.cloneNode(true);
    const [, , width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
    const make = (tag, attributes, text = "") => {
      const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
      for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
      node.textContent = text;
      return node;
    };
    const band = 36;
    copy.setAttribute("viewBox", `0 ${-band} ${width} ${height + band}`);
    copy.setAttribute("width", width);
    copy.setAttribute("height", height + band);
    all(".off", copy).forEach((node) => node.remove());
    copy.prepend(
      make("style", {}, document.getElementById("figure-style").textContent),
      make("rect", { class: "ground", y: -band, width, height: height + band }),
      make("text", { class: "title", x: 16, y: -8 }, title),
    );
    return new XMLSerializer().serializeToString(copy);
  };

  for (const figure of all("figure")) {
    const plots = all(".plot", figure);
    const shown = () => plots.find((plot) => !plot.hidden).querySelector("svg");
    const toggle = (series) => {
      for (const node of all(`[data-series="${series}"]`, figure)) {
        const off = node.classList.toggle("off");
        if (node.classList.contains("label")) node.setAttribute("aria-pressed", String(!off));
      }
      leave();
    };
    for (const label of all(".label", figure)) {
      label.setAttribute("role", "button");
      label.setAttribute("tabindex", "0");
      label.setAttribute("aria-pressed", "true");
      label.addEventListener("click", () => toggle(label.dataset.series));
      label.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        toggle(label.dataset.series);
      });
    }
    for (const plot of plots) {
      for (const svg of all("svg", plot)) {
        // The tip says what the title would, and the browser's own would cover it.
        svg.setAttribute("aria-label", svg.querySelector("title").textContent);
        svg.removeAttribute("aria-labelledby");
        svg.querySelector("title").remove();
        svg.addEventListener("pointermove", (event) => read(svg, event));
        svg.addEventListener("pointerdown", (event) => read(svg, event));
        svg.addEventListener("pointerleave", leave);
      }
    }
    for (const button of all(".log", figure)) {
      button.addEventListener("click", () => {
        const log = button.getAttribute("aria-pressed") !== "true";
        button.setAttribute("aria-pressed", String(log));
        const wanted = { x: "false", y: "false" };
        for (const other of all(".log", figure)) {
          wanted[other.dataset.axis] = other.getAttribute("aria-pressed");
        }
        for (const plot of plots) {
          plot.hidden = plot.dataset.x !== wanted.x || plot.dataset.y !== wanted.y;
        }
        leave();
      });
    }
    for (const button of all(".save", figure)) {
      const title = figure.querySelector("figcaption").textContent;
      button.addEventListener("click", () => {
        if (button.dataset.kind === "csv") {
          save(`${figure.dataset.name}.csv`, "text/csv", button.dataset.csv);
        } else {
          save(`${figure.dataset.name}.svg`, "image/svg+xml", alone(shown(), title));
        }
      });
    }
  }

  for (const table of all("table.sortable")) {
    const headings = all("thead th", table);
    headings.forEach((heading, column) => {
      heading.querySelector("button").addEventListener("click", () => {
        const down = heading.getAttribute("aria-sort") === "ascending";
        headings.forEach((other) => other.removeAttribute("aria-sort"));
        heading.setAttribute("aria-sort", down ? "descending" : "ascending");
        const key = (row) => row.cells[column].dataset.key ?? row.cells[column].textContent;
        const order = (a, b) => {
          const empty = (row) => row.cells[column].classList.contains("empty");
          if (empty(a) || empty(b)) return empty(a) - empty(b);
          const [x, y] = [Number(key(a)), Number(key(b))];
          const sign = down ? -1 : 1;
          if (!Number.isNaN(x) && !Number.isNaN(y)) return sign * (x - y);
          return sign * key(a).localeCompare(key(b), undefined, { numeric: true });
        };
        const body = table.tBodies[0];
        body.append(...[...body.rows].sort(order));
      });
    });
  }

  for (const button of all(".copy")) {
    button.addEventListener("click", async () => {
      const code = button.closest("tr").querySelector("code");
      try {
        await navigator.clipboard.writeText(code.textContent);
        button.textContent = "Copied";
        setTimeout(() => (button.textContent = "Copy"), 1500);
      } catch {
        // Pages opened from a disk may lack a clipboard: select the line for the reader's own copy.
        getSelection().selectAllChildren(code);
      }
    });
  }
})();
