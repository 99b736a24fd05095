// The table behind a chart, in a dialog, with its CSV.

import { nonfiniteText } from "./format.js";
import { tableOf } from "./plain.js";

const SHOWN = 500;

export function openTable(title, spec) {
  const { columns, rows } = tabled(spec);
  const dialog = document.createElement("dialog");
  dialog.className = "dialog wide";
  const head = document.createElement("div");
  head.className = "dialog-head";
  const heading = document.createElement("h2");
  heading.textContent = title;
  const actions = document.createElement("div");
  actions.className = "actions";
  const download = document.createElement("a");
  download.className = "button small";
  download.textContent = "Download CSV";
  download.download = `${title.replace(/[^\p{L}\p{N}@.-]+/gu, "_")}.csv`;
  const local = spec.csv ? "" : URL.createObjectURL(new Blob([csv(columns, rows)], { type: "text/csv" }));
  download.href = spec.csv ?? local;
  const close = document.createElement("button");
  close.type = "button";
  close.className = "button small";
  close.textContent = "Close";
  close.addEventListener("click", () => dialog.close());
  actions.append(download, close);
  head.append(heading, actions);
  const about = document.createElement("p");
  about.className = "quiet";
  about.textContent = [
    rows.length > SHOWN ? `The ${spec.kind === "table" ? "first" : "last"} ${SHOWN} of ${rows.length} rows.` : "",
    spec.series?.some((one) => one.reduced) ? "The chart shows fewer points than were logged; the CSV has all of them." : "",
  ].filter(Boolean).join(" ");
  const scroll = document.createElement("div");
  scroll.className = "table-scroll";
  scroll.append(tableOf(columns, spec.kind === "table" ? rows.slice(0, SHOWN) : rows.slice(-SHOWN)));
  dialog.append(head, about, scroll);
  dialog.addEventListener("close", () => {
    if (local) URL.revokeObjectURL(local);
    dialog.remove();
  });
  document.body.append(dialog);
  dialog.showModal();
}

// One row for each x that any series has; intervals in columns of their own.
export function tabled(spec) {
  if (spec.kind === "table") return { columns: spec.columns, rows: spec.rows };
  if (spec.kind === "text") return { columns: ["text"], rows: [[spec.text]] };
  if (spec.kind === "heatmap") {
    const flags = new Map((spec.nonfinite ?? []).map(([r, c, kind]) => [`${r} ${c}`, nonfiniteText(kind)]));
    return { columns: ["", ...spec.x.labels], rows: spec.z.map((row, r) => [spec.y.labels[r], ...row.map((value, c) => flags.get(`${r} ${c}`) ?? value)]) };
  }
  const columns = [spec.x?.title || "x"];
  const rows = new Map();
  if (spec.kind === "scatter") {
    const out = spec.series.flatMap((one) => one.x.map((x, i) => [x, one.y[i], one.name, one.notes?.[i] ?? ""]));
    for (const [x, y, what, label] of spec.off ?? []) out.push([x, y, what, label]);
    return { columns: [spec.x?.title || "x", spec.y?.title || "y", "series", "note"], rows: out };
  }
  let offset = 1;
  for (const one of spec.series) {
    const bounds = Boolean(one.lo);
    columns.push(one.name, ...(bounds ? [`${one.name} (low)`, `${one.name} (high)`] : []));
    const flags = new Map(one.nonfinite ?? []);
    one.x.forEach((x, i) => {
      if (!rows.has(x)) rows.set(x, [x]);
      const row = rows.get(x);
      row[offset] = flags.has(i) ? nonfiniteText(flags.get(i)) : one.y[i];
      if (bounds) [row[offset + 1], row[offset + 2]] = [one.lo[i], one.hi[i]];
    });
    offset = columns.length;
  }
  const sorted = [...rows.values()].sort((a, b) => a[0] - b[0]);
  return { columns, rows: sorted.map((row) => Array.from({ length: columns.length }, (_, i) => row[i] ?? null)) };
}

function csv(columns, rows) {
  const cell = (value) => {
    const text = value === null || value === undefined ? "" : typeof value === "object" ? JSON.stringify(value) : String(value);
    // A spreadsheet would run what begins like a formula.
    const safe = typeof value === "string" && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
    return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  return [columns, ...rows].map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}
