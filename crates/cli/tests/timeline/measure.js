"use strict";
addEventListener("load", () => {
  const box = (element) => element.getBoundingClientRect();
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const meets = (one, other) =>
    Math.min(one.right, other.right) - Math.max(one.left, other.left) > 0.05 &&
    Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top) > 0.05;
  const inside = (one, other) =>
    one.left >= other.left - 0.6 && one.right <= other.right + 0.6 && one.top >= other.top - 0.6 && one.bottom <= other.bottom + 0.6;
  const pairs = (boxes) => {
    let number = 0;
    boxes.forEach((one, at) => boxes.slice(at + 1).forEach((other) => (number += one.of !== other.of && meets(one.box, other.box))));
    return number;
  };
  const named = (elements, of) => elements.map((element) => ({ box: box(element), of: of(element) }));
  const key = (name) => {
    const at = document.activeElement || document.body;
    at.dispatchEvent(new KeyboardEvent("keydown", { key: name, bubbles: true, cancelable: true }));
  };

  const bars = all("main g.bar");
  const ofBar = (element) => element.closest("g.bar");
  const parts = named(all("main g.bar rect, main g.bar text"), ofBar);
  const tasks = named(all("main g.bar rect.task"), (task) => task);
  const rects = (bar) => all("rect:not(.task)", bar).map(box);
  const union = (boxes) => ({
    left: Math.min(...boxes.map((it) => it.left)), right: Math.max(...boxes.map((it) => it.right)),
    top: Math.min(...boxes.map((it) => it.top)), bottom: Math.max(...boxes.map((it) => it.bottom)),
  });
  const sheet = box(all("main svg.timeline")[1]);
  const first = Math.min(...bars.flatMap(rects).map((it) => it.left));
  const result = {
    bars: bars.length,
    runs: new Set(bars.map((bar) => bar.dataset.run)).size,
    overlappingBars: pairs(parts),
    overlappingTasks: pairs(tasks),
    overlappingTicks: pairs(named(all("svg.axis text"), (tick) => tick)),
    overlappingLegend: pairs(named(all("svg.key text"), (entry) => entry)),
    outsideOfPicture: parts.filter((part) => !inside(part.box, sheet)).length,
    namesBesideTheirBars: bars.filter((bar) => all("text.in", bar).some((name) => !inside(box(name), union(rects(bar))))).length,
    laneNamesInThePicture: all("main text.name").filter((name) => box(name).right > Math.max(first, box(all("main svg")[0]).left + 100)).length,
    emptyTitles: bars.filter((bar) => !bar.querySelector("title").textContent.includes("/")).length,
    resources: performance.getEntriesByType("resource").length,
  };

  bars[0].focus();
  const seen = new Set();
  const walk = (name, times) => {
    for (let step = 0; step < times; step += 1) {
      seen.add(document.activeElement);
      key(name);
    }
  };
  key("Home");
  result.home = document.activeElement === bars.find((bar) => bar === document.activeElement) && document.activeElement !== document.body;
  walk("ArrowRight", 3);
  walk("ArrowDown", 500);
  const atTheEnd = document.activeElement;
  walk("ArrowUp", 500);
  result.reachedByArrows = seen.size;
  result.wentDown = atTheEnd !== document.activeElement || all("main g.row").length < 2;
  result.told = document.getElementById("details").textContent.includes(document.activeElement.dataset.run);
  result.tabStops = bars.filter((bar) => bar.getAttribute("tabindex") === "0").length;

  key("/");
  const filter = document.getElementById("filter");
  result.filterFocused = document.activeElement === filter;
  filter.value = bars[0].dataset.run.split("/")[1];
  filter.dispatchEvent(new Event("input", { bubbles: true }));
  result.dimmed = bars.some((bar) => bar.classList.contains("dim"));
  result.found = document.getElementById("found").textContent;
  key("Escape");
  result.backFromFilter = document.activeElement.matches("g.bar") && !bars.some((bar) => bar.classList.contains("dim"));

  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const light = (colour) => {
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [red, green, blue] = [...canvas.getImageData(0, 0, 1, 1).data].map((part) =>
      part / 255 <= 0.04045 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4);
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const contrast = (one, other) => {
    const variable = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
    const [dark, bright] = [light(variable(one)), light(variable(other))].sort((a, b) => a - b);
    return (bright + 0.05) / (dark + 0.05);
  };
  const inks = ["held", "waiting", "waiting-hatch", "running", "reserved", "reserved-hatch", "plain", "unknown", "even", "odd", "absent"]
    .map((ground) => ["ink", ground]);
  const quiets = ["paper", "even", "odd", "absent"].map((ground) => ["quiet", ground]);
  const lines = ["held-line", "waiting-line", "running-line", "reserved-line", "plain-line", "task", "failed", "added", "focus"]
    .flatMap((line) => ["even", "odd"].map((ground) => [line, ground]));
  const least = (some) => Math.min(...some.map(([one, other]) => contrast(one, other)));
  const grounds = [];
  result.contrast = [0, 1].map(() => {
    grounds.push(getComputedStyle(document.body).backgroundColor);
    const figures = { text: least([...inks, ...quiets]), lines: least(lines) };
    key("d");
    return figures;
  });
  result.themes = new Set(grounds).size;
  result.errors = window.problems;
  document.body.dataset.measured = JSON.stringify(result);
});
