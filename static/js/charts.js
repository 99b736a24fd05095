// The charts of every page, driven by data. A page writes frames, this module does the rest:
//
//   <figure class="chart card" data-chart="/…/reward.json?x=iteration" data-slug="reward">
//     <figcaption><h2>Reward</h2><span class="chart-note"></span><span class="chart-tools"></span></figcaption>
//     <div class="chart-plot"><div class="skeleton tall"></div></div>
//   </figure>
//
//   import { mountAll, chartOf } from "./charts.js";
//   mountAll(document);                     every figure[data-chart], each when it comes near the viewport
//   chartOf(figure).show(spec)              draws a spec that the page has already
//   chartOf(figure).load(url)               another address (another axis), keeps the old picture until the new is there
//   chartOf(figure).reload()                asks its address again, keeps the zoom
//   chartOf(figure).append(delta)           grows in place, keeps the zoom; see below
//   chartOf(figure).spec                    what it shows, or null
//   figure fires "chartload" (detail: spec) after each load.
//
// The address answers with a spec, which is all a chart knows:
//
//   { kind: "lines" | "passk" | "bars" | "heatmap" | "scatter" | "table" | "text",
//     legend: false,                    no legend: the page has the key of the colours itself
//     title, note,                      the note stands beside the title, as plain text
//     x: {title, unit, axis, log2, range, from, ticks: [[value, text]]},
//                                       axis: its name, e.g. "sampled_tokens"; from: drawn from there on at the latest
//     y: {title, unit, rate, range, log},             rate: drawn on 0–1
//     series: [{key, name, x: [], y: [],              y null: a gap, or what `nonfinite` says
//               lo: [], hi: [],                       an interval, drawn as a band; null where there is none
//               notes: [],                            shown on hover after the value, e.g. "200 problems"
//               iteration: [],                        of each point, where x is another axis
//               nonfinite: [[index, "nan" | "inf" | "-inf"]],
//               slot: 0.. | "base" | "chance",        colour by number (Okabe–Ito, then dash patterns)
//               dash, markers: bool, hatched: bool, width: number, colors: [] (bars)}],
//     bands: [{begin, end, title}],     shaded stretches of x; end null: to the right edge
//     marks: [{x, kind, text, note}],   vertical lines; the note shows on hover
//     csv,                              address of all points as CSV; without it the table's rows are written by the page
//     heatmap: z: [[]], x.labels, y.labels, nonfinite: [[row, column, kind]], x.edges and y.edges where cells lie between numbers
//     scatter: off: [[x, y, what, label]]: points with a coordinate that is no number
//     table: columns: [], rows: [[]]         text: text }
//
// pass@k over k is `kind: "passk"` (x is logarithmic with a tick at each k). A histogram is `kind: "bars"`; `stacked: true`
// puts its series upon each other.
// A delta is { series: [{key, x, y, iteration, nonfinite}], bands, marks }: points of known keys are appended, a point at an
// iteration that is there already replaces it, unknown keys are left to the next load, bands and marks replace the old ones.

import { figureOf } from "./charts/figure.js";
import { loadPlotly } from "./plotly.js";
import { openTable } from "./charts/table.js";
import { drawTable } from "./charts/plain.js";

const MOUNTED = 12;
const NEAR = "300px 0px";
const GATHER_MS = 250;
const SETTLE_MS = 80;
const LONGEST = 6000;

const known = new WeakMap();
const mounted = new Set();
const watching = new IntersectionObserver(
  (entries) => {
    for (const entry of entries) chartOf(entry.target).seen(entry.isIntersecting);
  },
  { rootMargin: NEAR },
);
const resizing = new ResizeObserver((entries) => {
  for (const entry of entries) chartOf(entry.target.closest("figure.chart")).soon();
});

export function chartOf(figure) {
  let chart = known.get(figure);
  if (!chart) {
    chart = new Chart(figure);
    known.set(figure, chart);
  }
  return chart;
}

export function mountAll(root) {
  const figures = root.querySelectorAll("figure.chart");
  for (const figure of figures) watching.observe(figure);
  // Before the first points are there: the library takes a moment. A failure shows when a chart needs it.
  if (figures.length) loadPlotly().catch(() => {});
}

export function charts(root = document) {
  return [...root.querySelectorAll("figure.chart")].map(chartOf);
}

class Chart {
  constructor(figure) {
    this.figure = figure;
    this.plot = figure.querySelector(".chart-plot");
    this.spec = null;
    this.url = figure.dataset.chart ?? "";
    this.near = false;
    this.drawn = false;
    this.stale = true;
    this.zoom = null;
    this.timer = 0;
    this.turn = 0;
    this.pending = null;
    this.busy = null;
    this.again = false;
    this.outdated = false;
    this.request = null;
    this.arrival = 0;
    this._tools();
  }

  // --- data ---

  show(spec) {
    this.spec = spec;
    this.stale = false;
    this._caption();
    this.figure.dispatchEvent(new CustomEvent("chartload", { detail: spec, bubbles: true }));
    watching.observe(this.figure);
    if (this.near) return this._draw();
    return Promise.resolve();
  }

  load(url) {
    this.url = url;
    this.zoom = null;
    this.stale = true;
    return this.near ? this._fetch() : Promise.resolve();
  }

  // A chart that nobody looks at waits until somebody does. An answer on its way is awaited, and asked for once more:
  // while points pour in, giving up on each for the next would never show one.
  reload() {
    this.stale = true;
    if (!this.near || !this.url) return Promise.resolve();
    if (this.pending) {
      this.outdated = true;
      return Promise.resolve();
    }
    return this._fetch();
  }

  append(delta) {
    // What arrives while an answer is on its way may or may not be in it; merging twice does no harm.
    if (this.pending) this.pending.push(delta);
    if (!this.spec || this.stale) return;
    let changed = false;
    for (const added of delta.series ?? []) {
      const series = this.spec.series?.find((one) => one.key === added.key);
      if (series) {
        merge(series, added);
        changed = true;
        if (series.x.length > LONGEST) this.reload();
      }
    }
    for (const name of ["bands", "marks"]) {
      if (delta[name]) {
        this.spec[name] = delta[name];
        changed = true;
      }
    }
    if (changed) this.soon();
  }

  async _fetch() {
    const turn = ++this.turn;
    const width = Math.round(this.plot.clientWidth) || 600;
    const url = new URL(this.url, location.href);
    url.searchParams.set("max_points", String(Math.min(2000, Math.max(400, width * 2))));
    if (!this.spec) this.figure.dataset.state = "loading";
    this.pending = [];
    this.outdated = false;
    this.request?.abort();
    this.request = new AbortController();
    const { signal } = this.request;
    try {
      const response = await fetch(url, { headers: { Accept: "application/json" }, credentials: "same-origin", signal });
      if (!response.ok) throw new Error(`The server answered ${response.status}.`);
      const spec = await response.json();
      if (turn !== this.turn) return;
      const late = this.pending;
      this.pending = null;
      const shown = this.show(spec);
      for (const delta of late) this.append(delta);
      if (this.outdated) this.reload();
      await shown;
    } catch (error) {
      if (turn !== this.turn) return;
      this.pending = null;
      if (!signal.aborted) this._fail(error);
    }
  }

  // --- drawing ---

  // Who scrolls past fast asks for nothing: a chart must stay in view for a moment, and one that left is not waited for.
  seen(near) {
    this.near = near;
    clearTimeout(this.arrival);
    if (!near) {
      this.request?.abort();
      return;
    }
    this.arrival = setTimeout(() => {
      if (this.stale && this.url) this._fetch();
      else if (!this.drawn && this.spec) this._draw();
    }, SETTLE_MS);
  }

  soon() {
    if (this.timer || !this.near || !this.spec) return;
    this.timer = setTimeout(() => {
      this.timer = 0;
      if (this.near) this._draw();
    }, GATHER_MS);
  }

  // One drawing at a time: Plotly must not be called again, nor the plot taken away, before it is through.
  _draw() {
    if (this.busy) this.again = true;
    else {
      this.busy = this._drawOnce().catch((error) => this._broke(error)).finally(() => {
        this.busy = null;
        const again = this.again;
        this.again = false;
        if (again && this.near) this._draw();
      });
    }
    return this.busy ?? Promise.resolve();
  }

  async _drawOnce() {
    const spec = this.spec;
    const empty = emptyReason(spec);
    if (empty) {
      this._clear();
      this.figure.dataset.state = "empty";
      this.plot.textContent = empty;
      return;
    }
    if (spec.kind === "table" || spec.kind === "text") {
      this._clear();
      this.figure.dataset.state = "ready";
      drawTable(this.plot, spec);
      return;
    }
    const Plotly = await loadPlotly();
    if (spec !== this.spec) {
      this.again = true;
      return;
    }
    const first = !this.drawn;
    if (first) {
      this.plot.replaceChildren();
      this.plot.removeAttribute("role");
    }
    const size = { width: this.plot.clientWidth, height: this.plot.clientHeight };
    if (size.width < 40) return;
    const { data, layout } = figureOf(spec, { ...size, zoom: this.zoom });
    await Plotly.react(this.plot, data, layout, CONFIG);
    this.figure.dataset.state = "ready";
    this.drawn = true;
    if (first) {
      this.plot.setAttribute("role", "img");
      this.plot.setAttribute("aria-label", `${this._title()}: chart; its numbers are in the table behind the button`);
      this.plot.on("plotly_relayout", (change) => this._moved(change));
      this.plot.on("plotly_doubleclick", () => this._reset());
      resizing.observe(this.plot);
      mounted.add(this);
      retire(this);
    }
  }

  _moved(change) {
    const ranges = ["xaxis.range[0]", "yaxis.range[0]"].some((name) => name in change);
    if (!ranges) return;
    const { xaxis, yaxis } = this.plot._fullLayout;
    this.zoom = { x: [...xaxis.range], y: [...yaxis.range] };
    this.soon();
  }

  _reset() {
    this.zoom = null;
    this._draw();
    return false;
  }

  _clear() {
    resizing.unobserve(this.plot);
    if (this.drawn && window.Plotly) window.Plotly.purge(this.plot);
    this.plot.replaceChildren();
    this.plot.removeAttribute("role");
    this.drawn = false;
    mounted.delete(this);
  }

  unmount() {
    this._clear();
    const wait = document.createElement("div");
    wait.className = "skeleton tall";
    this.plot.append(wait);
  }

  // A drawing failed, or the library did not come: start over on the next try.
  _broke(error) {
    console.error(error);
    this.busy = null;
    this.drawn = false;
    this.stale = true;
    this._fail(error);
  }

  _fail(error) {
    if (this.drawn || this.busy) {
      // The old picture is still true, only no longer the newest.
      this._note(`Not up to date: ${error.message}`);
      return;
    }
    this._clear();
    this.figure.dataset.state = "error";
    const text = document.createElement("p");
    text.textContent = `This chart could not be loaded. ${error.message} Nothing is lost.`;
    const again = document.createElement("button");
    again.type = "button";
    again.className = "button small";
    again.textContent = "Try again";
    again.addEventListener("click", () => this._fetch());
    const box = document.createElement("div");
    box.className = "chart-message";
    box.append(text, again);
    this.plot.replaceChildren(box);
  }

  // --- frame ---

  _title() {
    return this.figure.querySelector("figcaption h2, figcaption h3")?.textContent ?? this.spec?.title ?? "Chart";
  }

  _note(text) {
    const note = this.figure.querySelector(".chart-note");
    if (note) note.textContent = text;
  }

  _caption() {
    const heading = this.figure.querySelector("figcaption h2, figcaption h3");
    if (heading && !heading.textContent && this.spec.title) heading.textContent = this.spec.title;
    this._note([this.spec.y?.unit, this.spec.note].filter(Boolean).join(" · "));
  }

  _tools() {
    const tools = this.figure.querySelector(".chart-tools");
    if (!tools || tools.querySelector("[data-chart-table]")) return;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "button plain small";
    button.dataset.chartTable = "";
    button.textContent = "Data";
    button.title = "The numbers behind this chart, as a table or CSV";
    button.addEventListener("click", () => {
      if (this.spec) openTable(this._title(), this.spec);
    });
    tools.append(button);
  }
}

const CONFIG = { displayModeBar: false, responsive: false, doubleClick: false, showTips: false, scrollZoom: false };

function emptyReason(spec) {
  if (spec.empty) return spec.empty;
  if (spec.kind === "table") return spec.rows.length ? "" : "No rows yet.";
  if (spec.kind === "text") return spec.text ? "" : "No text yet.";
  if (spec.kind === "heatmap") return spec.z?.length ? "" : "No values yet.";
  return spec.series?.some((one) => one.x.length) ? "" : "No points yet.";
}

// At most a dozen are alive: those out of sight go first, the longest mounted before the others.
function retire(newest) {
  for (const chart of [...mounted]) {
    if (mounted.size <= MOUNTED) return;
    if (chart !== newest && !chart.near && !chart.busy) chart.unmount();
  }
}

function merge(series, added) {
  const at = series.iteration ?? series.x;
  const from = added.iteration ?? added.x;
  const last = at.length ? at[at.length - 1] : -Infinity;
  const positions = new Map();
  for (let i = at.length - 1; i >= 0 && at[i] >= from[0]; i--) positions.set(at[i], i);
  const flags = new Map(series.nonfinite ?? []);
  const newFlags = new Map(added.nonfinite ?? []);
  from.forEach((iteration, i) => {
    let index = positions.get(iteration);
    if (index === undefined) {
      // An older point that the reduction left out stays out.
      if (iteration <= last) return;
      index = series.x.length;
      if (series.iteration) series.iteration[index] = iteration;
    }
    series.x[index] = added.x[i];
    series.y[index] = added.y[i];
    flags.delete(index);
    if (newFlags.has(i)) flags.set(index, newFlags.get(i));
  });
  series.nonfinite = [...flags.entries()];
}

document.addEventListener("themechange", () => {
  for (const chart of mounted) chart._draw();
});
