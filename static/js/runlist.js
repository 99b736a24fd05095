// The list of runs: the selection's bar, and a fresh table every few seconds while something moves and nothing is selected.

const EVERY_MS = 5000;
const list = document.getElementById("run-rows");
const form = document.getElementById("run-selection");
const bar = form.querySelector("[data-selection]");
const duplicate = bar.querySelector("[data-duplicate]");

const selected = () => [...list.querySelectorAll('input[name="runs"]:checked')].map((box) => box.value);

function show() {
  const runs = selected();
  bar.hidden = runs.length === 0;
  bar.querySelector("[data-selection-text]").textContent = `${runs.length} selected`;
  if (duplicate) {
    duplicate.hidden = runs.length !== 1;
    if (runs.length === 1) duplicate.href = `${duplicate.dataset.launch}?from=${encodeURIComponent(runs[0])}`;
  }
}

list.addEventListener("change", show);
bar.querySelector("[data-clear]").addEventListener("click", () => {
  for (const box of list.querySelectorAll('input[name="runs"]:checked')) box.checked = false;
  show();
});

// One address for a selection: ?runs=a,b.
form.addEventListener("submit", (event) => {
  event.preventDefault();
  location.href = `${form.action}?runs=${selected().join(",")}`;
});

for (const select of document.querySelectorAll(".run-filters select")) {
  select.addEventListener("change", () => select.form.requestSubmit());
}
document.querySelector(".run-filters").addEventListener("formdata", (event) => {
  for (const [name, value] of [...event.formData.entries()]) if (!value) event.formData.delete(name);
});

setInterval(() => {
  if (document.hidden || selected().length || !list.querySelector("[data-moving]")) return;
  window.htmx.trigger(list, "refresh");
}, EVERY_MS);
window.addEventListener("pageshow", show);
