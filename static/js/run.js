// The run's pages, live. One stream (see webapp/live) brings what is new since the page was made: progress, points, phases, logs.
// What a script would draw twice (heading, verdict) comes again as a fragment. A late visitor gets the same from the page itself.

import { chartOf, charts, mountAll } from "./charts.js";
import { drewAt, viewQuery } from "./figures.js";

const box = document.getElementById("run");
const THIN = "\u202f";
const LOG_LINES = 1000;
const CALM_MS = 400;
const QUIET_AFTER_MS = 4000;

let cursor = Number(box.dataset.cursor);
let axis = box.dataset.axis;
let state = box.dataset.state;

for (const figure of box.querySelectorAll("figure.chart[data-spec]")) {
  const spec = JSON.parse(document.getElementById(figure.dataset.spec).textContent);
  if (spec) chartOf(figure).show(spec);
}
mountAll(box);
phases();

// --- stream ---

let stream = null;
let lostTimer = 0;

function connect() {
  stream = new EventSource(`${box.dataset.stream}?cursor=${cursor}`);
  stream.addEventListener("open", () => status("open"));
  stream.addEventListener("delta", (event) => {
    const delta = JSON.parse(event.data);
    cursor = delta.cursor;
    status("open");
    take(delta);
  });
  stream.addEventListener("error", () => {
    status("wait");
    // The browser comes back by itself after a lost connection, but not after an answer that is no stream.
    if (stream.readyState === EventSource.CLOSED) setTimeout(follow, 5000);
  });
}

function status(now) {
  const live = document.getElementById("live");
  if (!live) return;
  if (now === "open") {
    clearTimeout(lostTimer);
    lostTimer = 0;
    live.dataset.state = "open";
    live.textContent = ["starting", "running", "stopping", "queued"].includes(state) ? "live" : "";
    return;
  }
  // Streams end and come back every few minutes; only a longer silence is worth a word.
  lostTimer ||= setTimeout(() => {
    const still = document.getElementById("live");
    still.dataset.state = "lost";
    still.textContent = "connection lost, trying again";
  }, QUIET_AFTER_MS);
}

// A tab that nobody sees holds no connection: a browser has only six for each server. Back in view it catches up.
function follow() {
  if (document.hidden) stream?.close();
  else if (!stream || stream.readyState === EventSource.CLOSED) connect();
}

follow();
document.addEventListener("visibilitychange", follow);
addEventListener("pagehide", () => stream?.close());
addEventListener("pageshow", follow);

// --- what is new ---

function take(delta) {
  progress(delta.run);
  if (delta.run.state !== state) {
    state = delta.run.state;
    soon("head", () => fragment("run-head").then(() => status("open")));
    if (!["queued", "starting", "running", "stopping"].includes(state)) soon("verdict", () => fragment("verdict"));
  }
  if (delta.logs) log(delta.logs);
  if (box.dataset.tab !== "overview") return;
  if (delta.reload || delta.rewind !== undefined) {
    soon("all", () => everything());
    return;
  }
  if (delta.series) grow(delta);
  if (delta.phases || delta.marks) soon("behind", () => behind());
  if (delta.evaluations) {
    soon("evaluations", () => {
      fragment("verdict");
      for (const figure of box.querySelectorAll("figure.chart[data-evaluation]")) chartOf(figure).reload();
    });
  }
  drewAt((delta.drawn ?? []).map((drawn) => drawn.iteration));
  for (const drawn of delta.drawn ?? []) {
    const figure = [...box.querySelectorAll("[data-drawn]")].find((one) => one.dataset.drawn === `${drawn.kind} ${drawn.key}`);
    if (figure) soon(`drawn ${drawn.kind} ${drawn.key}`, () => chartOf(figure).reload());
    else soon("frames", () => frames());
  }
}

const waiting = new Map();

// Several deltas in a row cause one answer.
function soon(name, work) {
  if (waiting.has(name)) return;
  waiting.set(name, setTimeout(() => {
    waiting.delete(name);
    work();
  }, CALM_MS));
}

// Keys that have a frame, or for which frames were asked for once.
const asked = new Set();

function grow(delta) {
  const places = new Map(delta.axes?.map((row) => [row.iteration, row[axis] ?? row.iteration]));
  const fresh = new Map();
  for (const one of delta.series) {
    fresh.set(one.key, { key: one.key, iteration: one.iteration, x: one.iteration.map((i) => places.get(i) ?? i), y: one.y, nonfinite: one.nonfinite });
  }
  for (const figure of box.querySelectorAll("figure.chart[data-keys]")) {
    const keys = figure.dataset.keys.split(" ");
    const added = keys.filter((key) => fresh.has(key));
    for (const key of keys) asked.add(key);
    if (!added.length) continue;
    const chart = chartOf(figure);
    const known = new Set(chart.spec?.series?.map((one) => one.key));
    if (added.every((key) => known.has(key))) chart.append({ series: added.map((key) => fresh.get(key)) });
    else chart.reload();
  }
  const unknown = [...fresh.keys()].filter((key) => !asked.has(key));
  for (const key of unknown) asked.add(key);
  if (unknown.length) soon("frames", () => frames());
}

async function everything() {
  await frames();
  fragment("run-head");
  fragment("verdict");
  for (const chart of charts(box)) chart.reload();
}

async function behind() {
  const answer = await ask(`${box.dataset.base}behind?x=${axis}`);
  if (!answer) return;
  const found = await answer.json();
  for (const chart of charts(box)) {
    if (chart.spec?.x?.axis) chart.append(found);
  }
  phases();
}

// New metrics bring new frames; those that are there stay as they are.
async function frames() {
  const holder = document.getElementById("charts");
  if (!holder) return;
  const answer = await ask(`${holder.dataset.url}?${viewQuery(axis)}`);
  if (!answer) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const section of fresh.querySelectorAll("[data-section]")) {
    const old = holder.querySelector(`[data-section="${section.dataset.section}"]`);
    if (!old) {
      holder.append(document.importNode(section, true));
      continue;
    }
    const grid = old.matches(".charts") ? old : old.querySelector(".charts");
    const count = old.querySelector("[data-count]");
    if (count) count.textContent = section.querySelector("[data-count]").textContent;
    if (old.dataset.lazy) {
      if (old.open) await unfold(old);
      continue;
    }
    const known = new Set([...grid.querySelectorAll("figure.chart")].map((one) => one.dataset.slug));
    for (const figure of section.querySelectorAll("figure.chart")) {
      if (!known.has(figure.dataset.slug)) grid.append(document.importNode(figure, true));
    }
  }
  mountAll(holder);
}

// A folded section has no frames until somebody opens it.
async function unfold(section) {
  const answer = await ask(`${section.dataset.lazy}?x=${axis}`);
  if (!answer) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  const grid = section.querySelector(".charts");
  const known = new Set([...grid.querySelectorAll("figure.chart")].map((one) => one.dataset.slug));
  for (const figure of fresh.querySelectorAll("figure.chart")) {
    if (!known.has(figure.dataset.slug)) grid.append(document.importNode(figure, true));
  }
  mountAll(grid);
}

document.addEventListener(
  "toggle",
  (event) => {
    const section = event.target;
    if (section.open && section.dataset?.lazy && !section.querySelector("figure.chart")) unfold(section);
  },
  true,
);

async function fragment(id) {
  const target = document.getElementById(id);
  if (!target) return;
  const answer = await ask(target.dataset.url);
  if (!answer) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  target.replaceChildren(...fresh.body.childNodes);
}

async function ask(url) {
  try {
    const answer = await fetch(url, { credentials: "same-origin" });
    return answer.ok ? answer : null;
  } catch {
    // The stream's own state tells that the server is away; what was asked for comes with the next change.
    return null;
  }
}

// --- heading ---

function progress(run) {
  const bar = document.querySelector("#run-progress progress");
  const at = document.getElementById("run-iteration");
  if (!at) return;
  if (run.total_iterations) {
    if (bar) {
      bar.max = run.total_iterations;
      bar.value = run.iteration;
    } else soon("head", () => fragment("run-head"));
    at.textContent = `Iteration ${grouped(run.iteration)} of ${grouped(run.total_iterations)}`;
  }
  const active = ["starting", "running", "stopping"].includes(run.state);
  const stage = run.stage_total ? `${run.stage} ${run.stage_done}/${run.stage_total}` : run.stage;
  document.getElementById("run-stage").textContent = active ? stage : "";
  if (active) document.getElementById("run-left").textContent = run.eta_seconds === null ? "" : `${duration(run.eta_seconds)} left`;
}

function grouped(number) {
  return String(number).replace(/\B(?=(\d{3})+$)/g, THIN);
}

function duration(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  for (const [unit, size, lower, lowerSize] of [["d", 86400, "h", 3600], ["h", 3600, "min", 60], ["min", 60, "s", 1]]) {
    if (whole >= size) {
      const rest = Math.floor((whole % size) / lowerSize);
      return `${Math.floor(whole / size)}${THIN}${unit}${rest ? ` ${rest}${THIN}${lower}` : ""}`;
    }
  }
  return `${whole}${THIN}s`;
}

// --- log ---

function log(lines) {
  const target = document.getElementById("log");
  if (!target) return;
  const atEnd = target.scrollHeight - target.scrollTop - target.clientHeight < 24;
  target.querySelector("[data-empty]")?.remove();
  for (const line of lines) {
    const row = document.createElement("span");
    row.dataset.level = line.level ?? "info";
    const time = document.createElement("time");
    time.textContent = line.time.slice(11, 19);
    row.append(time, ` ${line.message}\n`);
    target.append(row);
  }
  while (target.children.length > LOG_LINES) target.firstElementChild.remove();
  if (atEnd) target.scrollTop = target.scrollHeight;
}

const tail = document.getElementById("log");
if (tail) tail.scrollTop = tail.scrollHeight;

// --- axis ---

document.getElementById("axes")?.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-axis]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  axis = link.dataset.axis;
  const address = new URL(location.href);
  address.searchParams.set("x", axis);
  history.replaceState(null, "", address);
  for (const one of document.querySelectorAll("#axes a")) {
    if (one === link) one.setAttribute("aria-current", "true");
    else one.removeAttribute("aria-current");
  }
  const more = link.closest("#more-axes");
  document.querySelector("[data-axis-name]").textContent = more ? link.textContent : "More axes";
  if (more) more.open = false;
  for (const figure of box.querySelectorAll("figure.chart[data-chart]")) {
    const url = new URL(figure.dataset.chart, location.href);
    if (!url.searchParams.has("x")) continue;
    url.searchParams.set("x", axis);
    figure.dataset.chart = url.pathname + url.search;
    chartOf(figure).load(figure.dataset.chart);
  }
});

// What the shading behind the charts means, once for all of them.
function phases() {
  const target = document.getElementById("phases");
  if (!target) return;
  for (const chart of charts(box)) {
    const titles = new Set(chart.spec?.bands?.map((band) => band.title));
    if (titles.size) {
      target.textContent = `Shaded: ${[...titles].join(", ")}`;
      return;
    }
  }
}

box.addEventListener("chartload", () => phases());

// --- rollouts ---

document.addEventListener("input", (event) => {
  const shown = event.target.dataset?.shows && document.getElementById(event.target.dataset.shows);
  if (shown) shown.textContent = event.target.value;
});

document.addEventListener("htmx:afterSwap", () => mountAll(document));
