// Charts that are no pictures: tables and texts.

import { figure } from "./format.js";

const SHOWN = 200;

export function drawTable(box, spec) {
  if (spec.kind === "text") {
    const text = document.createElement("pre");
    text.className = "log";
    text.textContent = spec.text;
    box.replaceChildren(text);
    return;
  }
  const scroll = document.createElement("div");
  scroll.className = "table-scroll";
  scroll.append(tableOf(spec.columns, spec.rows.slice(0, SHOWN)));
  if (spec.rows.length > SHOWN) {
    const more = document.createElement("p");
    more.className = "quiet";
    more.textContent = `The first ${SHOWN} of ${spec.rows.length} rows; the CSV behind “Data” has all of them.`;
    scroll.append(more);
  }
  box.replaceChildren(scroll);
}

export function tableOf(columns, rows) {
  const table = document.createElement("table");
  table.className = "table";
  const head = table.createTHead().insertRow();
  for (const name of columns) {
    const cell = document.createElement("th");
    cell.scope = "col";
    cell.textContent = name;
    head.append(cell);
  }
  const body = table.createTBody();
  for (const row of rows) {
    const line = body.insertRow();
    for (const value of row) {
      const cell = line.insertCell();
      if (typeof value === "number") {
        cell.className = "num";
        cell.textContent = Number.isInteger(value) ? String(value) : figure(value);
        cell.title = String(value);
      } else {
        cell.textContent = value === null || value === undefined ? "—" : typeof value === "object" ? JSON.stringify(value) : String(value);
      }
    }
  }
  return table;
}
