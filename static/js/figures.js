// What the trainer drew: one slider for all of it, and histograms at the iteration or over time. Both are in the address (?at=, ?over=1).
// Without ?at= the newest is shown, and stays the newest while the run goes on.

import { chartOf } from "./charts.js";

const SETTLE_MS = 120;
let timer = 0;

const slider = () => document.getElementById("figures-at");
const iterations = () => slider().dataset.iterations.split(" ").map(Number);

// The part of the address that the page's charts depend on.
export function viewQuery(axis) {
  const query = new URLSearchParams(location.search);
  query.set("x", axis);
  return query;
}

// Iterations at which something new was drawn, for the slider.
export function drewAt(found) {
  const input = slider();
  const known = input ? iterations() : [];
  const added = [...new Set(found)].filter((at) => Number.isInteger(at) && !known.includes(at));
  if (!input || !added.length) return;
  const newest = Number(input.value) === known.length - 1 && !new URLSearchParams(location.search).has("at");
  const at = known[Number(input.value)];
  const all = [...known, ...added].sort((a, b) => a - b);
  input.dataset.iterations = all.join(" ");
  input.max = String(all.length - 1);
  input.value = String(newest ? all.length - 1 : all.indexOf(at));
}

function choose(change) {
  const address = new URL(location.href);
  for (const [name, value] of Object.entries(change)) {
    if (value === "") address.searchParams.delete(name);
    else address.searchParams.set(name, value);
  }
  history.replaceState(null, "", address);
  for (const figure of document.querySelectorAll("figure.chart[data-drawn]")) {
    const url = new URL(figure.dataset.chart, location.href);
    const before = url.search;
    for (const name of ["at", "over"]) {
      const value = address.searchParams.get(name);
      if (!value || (name === "over" && !figure.dataset.drawn.startsWith("histogram "))) url.searchParams.delete(name);
      else url.searchParams.set(name, value);
    }
    if (url.search === before) continue;
    figure.dataset.chart = url.pathname + url.search;
    chartOf(figure).load(figure.dataset.chart);
  }
}

function show(at) {
  document.getElementById("figures-shown").textContent = at === "" ? "newest" : at;
  document.getElementById("figures-newest").disabled = at === "";
}

document.addEventListener("input", (event) => {
  if (event.target.id === "figures-at") {
    const all = iterations();
    const place = Number(event.target.value);
    const at = place === all.length - 1 ? "" : String(all[place]);
    show(at);
    clearTimeout(timer);
    timer = setTimeout(() => choose({ at }), SETTLE_MS);
  } else if (event.target.matches("[data-figures-over]")) choose({ over: event.target.value });
});

document.addEventListener("click", (event) => {
  if (event.target.id !== "figures-newest") return;
  const input = slider();
  input.value = input.max;
  show("");
  choose({ at: "" });
});
