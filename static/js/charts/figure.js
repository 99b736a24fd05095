// A spec (see charts.js) as Plotly traces and layout, for the current theme and a given size. Only scatter and bar traces.

import { color, series as seriesStyle } from "../colors.js";
import { figure, nonfiniteText, place, plain } from "./format.js";

const FONT = 11;
const LABELS_FROM = 440; // narrower plots have a legend instead of labels at the lines' ends
const MOST_LABELS = 5;
const MOST_MARKS = 60;
const SIDE = { left: 48, right: 14, top: 8, bottom: 34, legend: 22 };
const SYMBOL = { nan: "x", inf: "triangle-up", "-inf": "triangle-down" };

// size: {width, height, zoom: null | {x: [a, b], y: [a, b]}} -> {data, layout}
export function figureOf(spec, size) {
  const styles = (spec.series ?? []).map((one) => styleOf(one));
  const lines = spec.kind === "lines" || spec.kind === "passk";
  const labelled = lines && !spec.y?.log && size.width >= LABELS_FROM && styles.length > 1 && styles.length <= MOST_LABELS;
  const legend = spec.legend !== false && !labelled && styles.length > 1;
  const data = [];
  if (lines) {
    const extent = xExtent(spec);
    data.push(...bandTraces(spec, extent), ...intervalTraces(spec, styles), ...lineTraces(spec, styles), ...edgeTraces(spec, styles));
  } else if (spec.kind === "bars") data.push(...barTraces(spec, styles));
  else if (spec.kind === "scatter") data.push(...scatterTraces(spec, styles), ...offTraces(spec));
  else if (spec.kind === "heatmap") data.push(...heatTraces(spec));
  data.push(...markTraces(spec));
  const yRange = size.zoom?.y ?? rangeOfY(spec);
  const ends = labelled ? endLabels(spec, styles, yRange, size.height - SIDE.top - SIDE.bottom) : [];
  const right = ends.length ? SIDE.right + 6.3 * Math.min(24, Math.max(...ends.map((one) => one.text.length))) : SIDE.right;
  const layout = {
    width: size.width,
    height: size.height,
    margin: { l: leftOf(spec, size), r: right, t: SIDE.top + (legend ? SIDE.legend : 0), b: SIDE.bottom, pad: 0 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.body).fontFamily, size: FONT, color: color("--text-2") },
    hovermode: spec.kind === "scatter" || spec.kind === "heatmap" ? "closest" : "x unified",
    hoverlabel: {
      bgcolor: color("--surface"), bordercolor: color("--line-strong"), font: { color: color("--text"), size: 12 }, align: "left", namelength: 40,
    },
    dragmode: "zoom",
    showlegend: legend,
    legend: {
      orientation: "h", x: 0, xanchor: "left", y: 1.02, yanchor: "bottom", font: { size: FONT, color: color("--text-2") },
      bgcolor: "rgba(0,0,0,0)", itemclick: "toggle", itemdoubleclick: "toggleothers",
    },
    xaxis: xAxis(spec, size),
    yaxis: yAxis(spec, yRange, size),
    // For what hangs at the edge of the plot whatever the values are: phases, and marks for NaN and infinities.
    yaxis2: { overlaying: "y", range: [0, 1], fixedrange: true, visible: false },
    annotations: ends.map((one) => ({
      xref: "paper", x: 1, xanchor: "left", yref: "paper", y: one.at, yanchor: "middle", xshift: 4,
      text: plain(one.text), showarrow: false, font: { size: FONT, color: one.color },
    })),
    shapes: [...(spec.kind === "heatmap" ? bandShapes(spec) : []), ...markShapes(spec)],
    barmode: spec.kind === "heatmap" ? "overlay" : spec.stacked ? "stack" : "group",
    bargap: 0.06,
    uirevision: "kept",
  };
  return { data, layout };
}

function styleOf(one) {
  if (one.slot === "base") return { color: color("--series-base"), dash: "dash", width: one.width ?? 1.5 };
  if (one.slot === "chance") return { color: color("--series-chance"), dash: "dot", width: one.width ?? 1.5 };
  const style = seriesStyle(Number(one.slot ?? 0));
  return { color: style.color, dash: one.dash ?? style.dash, width: one.width ?? 1.75 };
}

function faded(rgb, alpha) {
  const numbers = rgb.match(/[\d.]+/g).map(Number);
  // color(srgb r g b) counts from 0 to 1.
  const parts = rgb.startsWith("color(") ? numbers.slice(0, 3).map((n) => Math.round(n * 255)) : numbers.slice(0, 3);
  return `rgba(${parts.join(",")},${alpha})`;
}

// --- lines ---

function lineTraces(spec, styles) {
  return spec.series.map((one, i) => {
    const few = one.markers ?? (one.slot !== "chance" && sparse(one));
    return {
      type: "scatter",
      mode: few ? "lines+markers" : "lines",
      name: plain(one.name),
      x: one.x,
      y: one.y,
      connectgaps: false,
      line: { color: styles[i].color, dash: styles[i].dash, width: styles[i].width, shape: "linear" },
      marker: { color: styles[i].color, size: 5, symbol: one.hollow ? "circle-open" : "circle" },
      customdata: hoverTexts(one, spec),
      hovertemplate: "%{customdata}",
    };
  });
}

// Whole numbers are counts and stay whole.
function counted(value) {
  return Number.isInteger(value) && Math.abs(value) < 1e9 ? place(value) : figure(value);
}

function sparse(one) {
  return one.x.length <= 40;
}

function hoverTexts(one, spec) {
  return one.y.map((value, i) => {
    let text = spec.y?.rate ? figure(value) : counted(value);
    if (one.lo && one.lo[i] !== null && one.hi[i] !== null) text += ` [${figure(one.lo[i])}, ${figure(one.hi[i])}]`;
    else if (one.lo && one.lo[i] !== null && one.lo[i] !== undefined) text += ` [${figure(one.lo[i])}, —]`;
    if (one.notes?.[i]) text += ` · ${one.notes[i]}`;
    return plain(text);
  });
}

// An interval is one polygon for each stretch without a gap.
function intervalTraces(spec, styles) {
  const out = [];
  spec.series.forEach((one, i) => {
    if (!one.lo) return;
    const x = [];
    const y = [];
    let run = [];
    const close = () => {
      if (run.length === 1) {
        // One point has no area: an error bar does.
        x.push(one.x[run[0]], one.x[run[0]], null);
        y.push(one.lo[run[0]], one.hi[run[0]], null);
      } else if (run.length) {
        for (const k of run) [x[x.length], y[y.length]] = [one.x[k], one.hi[k]];
        for (const k of run.slice().reverse()) [x[x.length], y[y.length]] = [one.x[k], one.lo[k]];
        x.push(null);
        y.push(null);
      }
      run = [];
    };
    one.x.forEach((_, k) => {
      if (isNumber(one.lo[k]) && isNumber(one.hi[k])) run.push(k);
      else close();
    });
    close();
    if (!x.length) return;
    const single = x.length === 3;
    const fill = faded(styles[i].color, one.slot === "base" ? 0.13 : 0.18);
    out.push({
      type: "scatter", mode: "lines", x, y, fill: "toself", fillcolor: fill,
      ...(one.hatched ? { fillpattern: { shape: "/", size: 7, solidity: 0.2, fgcolor: faded(styles[i].color, 0.55), bgcolor: fill } } : {}),
      line: { width: single ? 3 : 0, color: faded(styles[i].color, 0.4) }, hoverinfo: "skip", showlegend: false,
    });
  });
  return out;
}

// NaN and infinities: a mark with its word at the edge of the plot, above for +∞ and NaN, below for −∞.
function edgeTraces(spec, styles) {
  const out = [];
  spec.series.forEach((one, i) => {
    if (!one.nonfinite?.length) return;
    const crowded = one.nonfinite.length > 8;
    out.push({
      type: "scatter",
      mode: crowded ? "markers" : "markers+text",
      yaxis: "y2",
      name: plain(one.name),
      x: one.nonfinite.map(([index]) => one.x[index]),
      y: one.nonfinite.map(([, kind]) => (kind === "-inf" ? 0.03 : 0.97)),
      text: one.nonfinite.map(([, kind]) => nonfiniteText(kind)),
      textposition: "middle right",
      textfont: { size: FONT + 2, weight: 700, color: color("--warn") },
      marker: { symbol: one.nonfinite.map(([, kind]) => SYMBOL[kind] ?? "x"), size: 9, color: color("--warn"), line: { width: 1.5, color: styles[i].color } },
      customdata: one.nonfinite.map(([, kind]) => nonfiniteText(kind)),
      hovertemplate: "%{customdata}",
      showlegend: false,
      cliponaxis: false,
    });
  });
  return out;
}

// --- phases and marks ---

function bandTraces(spec, [left, right]) {
  const bands = spec.bands ?? [];
  if (!bands.length) return [];
  const x = [];
  const y = [];
  for (const band of bands) {
    const begin = Math.max(band.begin, left);
    const end = Math.min(band.end ?? right, right);
    if (end <= begin) continue;
    x.push(begin, begin, end, end, null);
    y.push(0, 1, 1, 0, null);
  }
  if (!x.length) return [];
  return [{
    type: "scatter", mode: "lines", x, y, yaxis: "y2", fill: "toself", fillcolor: color("--chart-phase"), line: { width: 0 },
    hoverinfo: "skip", showlegend: false,
  }];
}

// Bands over the cells of a heat map, which leave no ground to shade: a line along the lower edge.
function bandShapes(spec) {
  if (!spec.bands?.length || !spec.x.edges) return [];
  const [left, right] = xExtent(spec);
  return spec.bands.map((band) => ({
    type: "rect", xref: "x", yref: "paper", x0: Math.max(band.begin, left), x1: Math.min(band.end ?? right, right), y0: 0, y1: 0.025,
    layer: "above", line: { width: 0 }, fillcolor: color("--text-3"),
  }));
}

// Marks at one place are one line: what happened there stands on it once, and in full on hover.
function marksByPlace(spec) {
  const found = new Map();
  for (const mark of (spec.marks ?? []).slice(-MOST_MARKS)) {
    const at = found.get(mark.x) ?? { x: mark.x, kinds: new Set(), texts: new Set(), notes: [] };
    at.kinds.add(mark.kind);
    at.texts.add(mark.text);
    at.notes.push(`${mark.text}, ${mark.note ?? ""}`);
    found.set(mark.x, at);
  }
  return [...found.values()];
}

function markShapes(spec) {
  return marksByPlace(spec).map((mark) => ({
    type: "line", xref: "x", yref: "paper", x0: mark.x, x1: mark.x, y0: 0, y1: 1, layer: spec.kind === "heatmap" ? "above" : "below",
    line: { color: color(mark.kinds.has("alert") ? "--warn" : "--text-3"), width: 1, dash: mark.kinds.has("rewind") ? "dashdot" : "solid" },
    label: { text: plain([...mark.texts].join(", ")), textposition: "end", textangle: -90, xanchor: "right", padding: 2, font: { size: 10, color: color("--text-3") } },
  }));
}

function markTraces(spec) {
  const marks = marksByPlace(spec);
  if (!marks.length) return [];
  return [{
    type: "scatter", mode: "markers", yaxis: "y2", x: marks.map((mark) => mark.x), y: marks.map(() => 1), showlegend: false,
    marker: { symbol: "triangle-down", size: 7, color: marks.map((mark) => color(mark.kinds.has("alert") ? "--warn" : "--text-3")) },
    customdata: marks.map((mark) => plain(mark.notes.slice(0, 4).join("; "))), hovertemplate: "%{customdata}<extra></extra>", cliponaxis: false,
  }];
}

// --- bars, points, cells ---

function barTraces(spec, styles) {
  return spec.series.map((one, i) => ({
    type: "bar",
    name: plain(one.name),
    x: one.x,
    y: one.y,
    ...(one.widths ? { width: one.widths } : {}),
    marker: { color: one.colors?.map((name) => color(name)) ?? faded(styles[i].color, 0.8), line: { width: 0 } },
    customdata: one.y.map((value, k) => plain(`${counted(Math.abs(value))}${one.notes?.[k] ? ` · ${one.notes[k]}` : ""}`)),
    hovertemplate: "%{customdata}",
    ...(spec.mirror ? { offsetgroup: "one" } : {}),
  }));
}

function scatterTraces(spec, styles) {
  return spec.series.map((one, i) => ({
    type: "scatter",
    mode: one.joined ? "lines+markers" : "markers",
    name: plain(one.name),
    x: one.x,
    y: one.y,
    line: { color: styles[i].color, width: 1, dash: styles[i].dash },
    marker: { color: styles[i].color, size: 7, opacity: 0.8 },
    customdata: one.x.map((x, k) => plain([one.notes?.[k], `${figure(x)}, ${figure(one.y[k])}`].filter(Boolean).join(" · "))),
    hovertemplate: "%{customdata}",
  }));
}

// Points with a coordinate that is no number, at the edge where it would lie: NaN and +∞ at the upper or right one.
function offTraces(spec) {
  if (!spec.off?.length) return [];
  const xs = spec.series.flatMap((one) => one.x);
  const [low, high] = xs.length ? [Math.min(...xs), Math.max(...xs)] : [0, 1];
  const minus = (text, axis) => text.includes(`${axis} −∞`);
  return [{
    type: "scatter", mode: "markers", yaxis: "y2", showlegend: false, cliponaxis: false,
    x: spec.off.map(([x, , what]) => x ?? (minus(what, "x") ? low : high)),
    y: spec.off.map(([, , what]) => (what.includes("y ") ? (minus(what, "y") ? 0.02 : 0.98) : 0.5)),
    marker: { symbol: "x", size: 9, color: color("--warn") },
    customdata: spec.off.map(([x, y, what, label]) => plain([label, what, x === null ? "" : `x ${figure(x)}`, y === null ? "" : `y ${figure(y)}`].filter(Boolean).join(" · "))),
    hovertemplate: "%{customdata}<extra></extra>",
  }];
}

// A heat map of bars: one bar a cell, because images in SVG break the pages' content security policy. Cells lie between
// `edges` where an axis has them, else each around its number.
function heatTraces(spec) {
  const columns = spec.x.edges ?? spec.x.labels.map((_, i) => i - 0.5).concat(spec.x.labels.length - 0.5);
  const rows = spec.y.edges ?? spec.y.labels.map((_, i) => i - 0.5).concat(spec.y.labels.length - 0.5);
  const x = [];
  const base = [];
  const width = [];
  const height = [];
  const values = [];
  const texts = [];
  const name = (r, c) => [spec.y.labels[r], spec.x.labels[c]].filter(Boolean).join(", ");
  spec.z.forEach((row, r) => row.forEach((value, c) => {
    if (value === null) return;
    x.push((columns[c] + columns[c + 1]) / 2);
    width.push(columns[c + 1] - columns[c]);
    base.push(rows[r]);
    height.push(rows[r + 1] - rows[r]);
    values.push(value);
    texts.push(plain(`${name(r, c)}: ${figure(value)}`));
  }));
  const cells = {
    type: "bar", x, base, y: height, width, customdata: texts, hovertemplate: "%{customdata}<extra></extra>", showlegend: false,
    marker: {
      color: values, colorscale: [[0, color("--surface-2")], [1, color("--series-4")]], cmin: spec.zmin, cmax: spec.zmax > spec.zmin ? spec.zmax : spec.zmin + 1,
      line: { width: 0 }, showscale: false, // its bar would need inline styles; the note says what the colours mean
    },
  };
  const odd = spec.nonfinite ?? [];
  if (!odd.length) return [cells];
  return [cells, {
    type: "scatter", mode: "markers", showlegend: false,
    x: odd.map(([, c]) => (columns[c] + columns[c + 1]) / 2),
    y: odd.map(([r]) => (rows[r] + rows[r + 1]) / 2),
    marker: { symbol: odd.map(([, , kind]) => SYMBOL[kind] ?? "x"), size: 7, color: color("--warn") },
    customdata: odd.map(([r, c, kind]) => plain(`${name(r, c)}: ${nonfiniteText(kind)}`)), hovertemplate: "%{customdata}<extra></extra>",
  }];
}

// --- axes ---

function isNumber(value) {
  return typeof value === "number" && Number.isFinite(value);
}

function xExtent(spec) {
  if (spec.x?.edges) return [spec.x.edges[0], spec.x.edges[spec.x.edges.length - 1]];
  let low = Infinity;
  let high = -Infinity;
  for (const one of spec.series) {
    if (!one.x.length) continue;
    low = Math.min(low, one.x[0]);
    high = Math.max(high, one.x[one.x.length - 1]);
  }
  return low <= high ? [low, high] : [0, 1];
}

// "Device time (s)", but not "Sampled tokens (tokens)".
function unitBeside(axis) {
  return axis?.unit && !axis.title?.toLowerCase().includes(axis.unit.toLowerCase()) ? `(${axis.unit})` : "";
}

function xAxis(spec, size) {
  const axis = {
    title: { text: plain([spec.x?.title, unitBeside(spec.x)].filter(Boolean).join(" ")), font: { size: FONT, color: color("--text-3") }, standoff: 4 },
    gridcolor: color("--chart-grid"),
    zeroline: false,
    linecolor: color("--line-strong"),
    showline: true,
    ticks: "outside",
    ticklen: 3,
    tickcolor: color("--line-strong"),
    exponentformat: "SI",
    nticks: Math.max(3, Math.floor(size.width / 80)),
    showspikes: true, spikemode: "across", spikethickness: 1, spikedash: "solid", spikecolor: color("--line-strong"), spikesnap: "data",
    unifiedhovertitle: { text: plain(spec.x?.title ? `${spec.x.title} %{x}` : "%{x}") },
  };
  if (spec.kind === "heatmap" && spec.x.edges) {
    const [first, last] = xExtent(spec);
    return { ...axis, showspikes: false, showgrid: false, range: size.zoom?.x ?? [Math.min(first, spec.x.from ?? first), last], autorange: false };
  }
  if (spec.kind === "heatmap") {
    const shown = fewer(spec.x.labels, size.width / 64);
    return { ...axis, showspikes: false, tickvals: shown, ticktext: shown.map((i) => plain(shortened(spec.x.labels[i], 10))), showgrid: false, range: size.zoom?.x ?? [-0.5, spec.x.labels.length - 0.5], autorange: false };
  }
  if (spec.x?.ticks) Object.assign(axis, { tickvals: spec.x.ticks.map(([at]) => at), ticktext: spec.x.ticks.map(([, text]) => plain(text)) });
  if (spec.kind === "passk" || spec.x?.log2) {
    const ks = [...new Set(spec.series.flatMap((one) => one.x))].sort((a, b) => a - b);
    const pad = 0.04;
    const range = [Math.log10(ks[0]) - pad, Math.log10(ks[ks.length - 1]) + pad];
    Object.assign(axis, { type: "log", tickvals: ks, ticktext: ks.map((k) => place(k)), range: size.zoom?.x ?? range, autorange: false });
    return axis;
  }
  if (spec.kind === "lines") {
    const [first, high] = spec.x?.range ?? xExtent(spec);
    const low = Math.min(first, spec.x?.from ?? first);
    // A single point stands at the left, where the line will begin.
    const last = low === high ? low + 1 : high;
    const pad = (last - low) * 0.01;
    Object.assign(axis, { range: size.zoom?.x ?? [low - pad, last + pad], autorange: false });
    if (low === high && spec.x?.axis === "iteration") axis.dtick = 1;
    if (!spec.x?.axis || spec.x.axis === "iteration") axis.hoverformat = ",d";
  } else if (size.zoom) Object.assign(axis, { range: size.zoom.x, autorange: false });
  return axis;
}

function yAxis(spec, range, size) {
  const axis = {
    gridcolor: color("--chart-grid"),
    zeroline: false,
    showline: false,
    nticks: 6,
    exponentformat: "e",
    tickfont: { size: FONT },
    title: spec.y?.title ? { text: plain(spec.y.title), font: { size: FONT, color: color("--text-3") }, standoff: 4 } : undefined,
  };
  if (spec.kind === "heatmap" && spec.y.edges) {
    return { ...axis, showgrid: false, range: size.zoom?.y ?? [spec.y.edges[0], spec.y.edges[spec.y.edges.length - 1]], autorange: false };
  }
  if (spec.kind === "heatmap") {
    const shown = fewer(spec.y.labels, size.height / 18);
    const last = spec.y.labels.length - 0.5;
    const full = spec.y.reversed ? [last, -0.5] : [-0.5, last];
    return { ...axis, tickvals: shown, ticktext: shown.map((i) => plain(shortened(spec.y.labels[i], Math.floor(leftOf(spec, size) / 6.4)))), range: size.zoom?.y ?? full, autorange: false, showgrid: false };
  }
  if (spec.mirror) {
    const most = Math.max(...range.map(Math.abs));
    const step = niceStep(most / 3);
    const ticks = [];
    for (let at = -Math.floor(most / step) * step; at <= most; at += step) ticks.push(at);
    Object.assign(axis, { tickvals: ticks, ticktext: ticks.map((at) => place(Math.abs(at))), zeroline: true, zerolinecolor: color("--line-strong") });
  }
  if (spec.y?.log) return { ...axis, type: "log", ...logTicks(spec) };
  return { ...axis, range, autorange: false };
}

// 1, 2 and 5 of every power of ten that the data reach, written out.
function logTicks(spec) {
  const values = spec.series.flatMap((one) => one.y).filter((value) => isNumber(value) && value > 0);
  if (!values.length) return {};
  const tickvals = [];
  for (let power = Math.floor(Math.log10(Math.min(...values))); power <= Math.log10(Math.max(...values)); power++) {
    for (const m of [1, 2, 5]) tickvals.push(Number(`${m}e${power}`));
  }
  return { tickvals, ticktext: tickvals.map(String) };
}

function niceStep(wanted) {
  const power = 10 ** Math.floor(Math.log10(wanted || 1));
  return power * ([1, 2, 5, 10].find((m) => m * power >= wanted) ?? 10);
}

// Rates on 0–1 (further where the data go further), other values by the data, intervals included.
export function rangeOfY(spec) {
  if (spec.y?.range) return spec.y.range;
  let low = Infinity;
  let high = -Infinity;
  for (const one of spec.series ?? []) {
    for (const values of [one.y, one.lo ?? [], one.hi ?? []]) {
      for (const value of values) {
        if (!isNumber(value)) continue;
        if (value < low) low = value;
        if (value > high) high = value;
      }
    }
  }
  if (low > high) return [0, 1];
  // Room at the edges for the marks of what is no number.
  const kinds = new Set((spec.series ?? []).flatMap((one) => (one.nonfinite ?? []).map(([, kind]) => kind)));
  const above = kinds.has("nan") || kinds.has("inf") ? 0.08 : 0;
  const below = kinds.has("-inf") ? 0.08 : 0;
  if (spec.y?.rate) return [Math.min(0, low) - 0.02 - below, Math.max(1, high) + 0.02 + above];
  if (spec.kind === "bars") low = Math.min(0, low);
  const pad = high === low ? Math.abs(high) * 0.1 || 1 : (high - low) * 0.06;
  const span = high - low + 2 * pad;
  return [spec.kind === "bars" && low === 0 ? 0 : low - pad - below * span, high + pad + above * span];
}

// --- labels at the lines' ends, moved apart where they would overlap ---

function endLabels(spec, styles, [low, high], height) {
  const found = spec.series.map((one, i) => {
    let index = one.y.length - 1;
    while (index >= 0 && !isNumber(one.y[index])) index--;
    const share = index < 0 ? 0.5 : (one.y[index] - low) / (high - low);
    return { text: shortened(one.name), color: styles[i].color, at: Math.min(1, Math.max(0, share)) };
  });
  const gap = (FONT + 3) / Math.max(1, height);
  const order = [...found].sort((a, b) => a.at - b.at);
  for (let i = 1; i < order.length; i++) order[i].at = Math.max(order[i].at, order[i - 1].at + gap);
  const over = order.length ? order[order.length - 1].at - 1 : 0;
  if (over > 0) {
    order[order.length - 1].at = 1;
    for (let i = order.length - 2; i >= 0; i--) order[i].at = Math.min(order[i].at, order[i + 1].at - gap);
  }
  return found;
}

function shortened(text, most = 28) {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

// Indices of at most so many labels, evenly chosen.
function fewer(labels, most) {
  const step = Math.max(1, Math.ceil(labels.length / Math.max(1, most)));
  return labels.map((_, i) => i).filter((i) => i % step === 0);
}

// Room for the names of a heat map's rows, up to a third of the plot.
function leftOf(spec, size) {
  if (spec.kind !== "heatmap" || spec.y.edges) return SIDE.left;
  const longest = Math.max(0, ...spec.y.labels.map((text) => text.length));
  return Math.round(Math.max(SIDE.left, Math.min(size.width / 3, longest * 6.4 + 12)));
}
