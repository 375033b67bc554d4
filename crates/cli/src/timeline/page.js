"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  const lanes = [...document.querySelectorAll("g.row")]
    .map((row) => [...row.querySelectorAll("g.bar")])
    .filter((bars) => bars.length > 0);
  const bars = lanes.flat();
  const details = byId("details");
  const filter = byId("filter");
  const found = byId("found");
  let current = bars[0];

  const text = (bar) => bar.querySelector("title").textContent;
  const middle = (bar) => {
    const box = bar.querySelector("rect").getBoundingClientRect();
    return box.left + box.width / 2;
  };
  const left = (bar) => bar.querySelector("rect").getBoundingClientRect().left;
  const shown = (bar) => !bar.classList.contains("dim");
  lanes.forEach((lane) => lane.sort((one, other) => left(one) - left(other)));

  const tell = (bar) => {
    details.textContent = text(bar);
    bars.forEach((other) => other.classList.toggle("same", other.dataset.run === bar.dataset.run));
  };
  const reach = (bar) => {
    current.setAttribute("tabindex", "-1");
    current = bar;
    bar.setAttribute("tabindex", "0");
  };
  const go = (bar) => {
    if (!bar) return;
    reach(bar);
    bar.focus();
    bar.scrollIntoView({ block: "nearest", inline: "nearest" });
  };

  const beside = (step) => {
    const lane = lanes.find((it) => it.includes(current)).filter((bar) => bar === current || shown(bar));
    return lane[lane.indexOf(current) + step];
  };
  const across = (step) => {
    const place = middle(current);
    const far = (bar) => Math.abs(middle(bar) - place);
    let at = lanes.findIndex((it) => it.includes(current)) + step;
    for (; at >= 0 && at < lanes.length; at += step) {
      const there = lanes[at].filter(shown);
      if (there.length > 0) return there.reduce((one, other) => (far(other) < far(one) ? other : one));
    }
    return undefined;
  };
  const ofRun = (step) => {
    const same = bars.filter((bar) => bar.dataset.run === current.dataset.run);
    same.sort((one, other) => left(one) - left(other));
    return same[(same.indexOf(current) + step + same.length) % same.length];
  };
  const first = () => bars.find(shown);
  const last = () => bars.filter(shown).at(-1);

  const turn = () => {
    const root = document.documentElement;
    const dark = root.dataset.theme
      ? root.dataset.theme === "dark"
      : window.matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  };
  const search = () => {
    const words = filter.value.trim().toLowerCase();
    bars.forEach((bar) => bar.classList.toggle("dim", !bar.dataset.run.toLowerCase().includes(words)));
    const names = (some) => new Set(some.map((bar) => bar.dataset.run)).size;
    found.textContent = words ? `${names(bars.filter(shown))} of ${names(bars)} runs` : "";
    if (current && !shown(current) && first()) reach(first());
  };

  const moves = {
    ArrowLeft: () => beside(-1),
    ArrowRight: () => beside(1),
    ArrowUp: () => across(-1),
    ArrowDown: () => across(1),
    Home: first,
    End: last,
    n: () => ofRun(1),
    p: () => ofRun(-1),
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.target === filter) {
      if (event.key === "Escape") {
        filter.value = "";
        search();
        go(current);
      } else if (event.key === "Enter") {
        go(first());
      }
      return;
    }
    if (event.key === "/") {
      event.preventDefault();
      filter.focus();
    } else if (event.key === "d") {
      turn();
    } else if (event.target.closest("g.bar") && moves[event.key]) {
      event.preventDefault();
      go(moves[event.key]());
    }
  });
  filter.addEventListener("input", search);
  byId("theme").addEventListener("click", turn);
  bars.forEach((bar) => {
    bar.addEventListener("focus", () => tell(bar));
    bar.addEventListener("click", () => go(bar));
    bar.addEventListener("mouseenter", () => {
      if (!document.activeElement || !document.activeElement.closest("g.bar")) tell(bar);
    });
  });
  if (current) current.setAttribute("tabindex", "0");
  else details.textContent = "No PipelineRuns in this time. Look further back with --since, or into all namespaces with -A.";
})();
