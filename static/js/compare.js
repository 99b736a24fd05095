// The compare page: one address for every choice, copies, and the charts.

import { mountAll } from "./charts.js";
import { toast } from "./app.js";

const picker = document.getElementById("compare-picker");

// --- the address: short lists, nothing empty ---

function go() {
  const fields = new FormData(picker);
  const query = new URLSearchParams();
  for (const name of new Set(fields.keys())) {
    const values = fields.getAll(name).filter(Boolean);
    if (values.length && !(name === "x" && values[0] === "iteration")) query.set(name, values.join(","));
  }
  location.href = `${picker.action}?${query.toString().replaceAll("%2C", ",").replaceAll("%2F", "/").replaceAll("%40", "@")}`;
}

picker.addEventListener("submit", (event) => {
  event.preventDefault();
  // Another set of runs may not know the old reference or set.
  for (const name of ["ref", "set", "mix"]) picker.querySelector(`input[name="${name}"]`)?.remove();
  go();
});
for (const select of picker.querySelectorAll("select")) select.addEventListener("change", go);

picker.querySelector("[data-find-runs]")?.addEventListener("input", (event) => {
  const wanted = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const row of picker.querySelectorAll("[data-words]")) {
    row.hidden = !wanted.every((word) => row.dataset.words.includes(word)) && !row.querySelector("input:checked");
  }
});

document.querySelector("[data-metric-axis]")?.addEventListener("change", (event) => {
  picker.querySelector("[data-axis]").value = event.target.value;
  go();
});
document.querySelector("[data-show-metrics]")?.addEventListener("click", () => {
  const chosen = [...document.querySelectorAll("[data-metric]:checked")].map((box) => box.value);
  picker.querySelector("[data-metrics]").value = chosen.join(",");
  go();
});

// On a phone the figure comes first.
if (matchMedia("(max-width: 900px)").matches && document.querySelector(".compare-main figure")) {
  document.querySelector(".compare-fold").open = false;
}

// --- copies ---

async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
    toast(`${what} copied.`, "success");
  } catch {
    toast("The browser does not let this page copy; select the text by hand.", "error");
  }
}

document.querySelector("[data-copy]")?.addEventListener("click", (event) => {
  copy(document.getElementById(event.currentTarget.dataset.copy).value, "The tables are");
});
document.querySelector("[data-copy-link]")?.addEventListener("click", () => copy(location.href, "The link is"));

mountAll(document);
