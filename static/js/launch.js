// The launch form: marks what differs from its default, finds settings, asks for the preview, and puts its complaints at the inputs.
// Which inputs there are is the server's business (htmx swaps #launch-parts); this module keeps nothing of them.

const ASK_MS = 350;
const form = document.getElementById("launch-form");
let timer = 0;
let onlyChanged = false;

const words = (text) => text.toLowerCase().split(/\s+/).filter(Boolean);
const has = (element, wanted) => wanted.every((word) => (element.dataset.words ?? "").includes(word));

function valueOf(setting) {
  const box = setting.querySelector("input[type=checkbox]");
  if (box && setting.classList.contains("check")) return String(box.checked);
  return setting.querySelector("input[type=text], select, textarea")?.value ?? null;
}

function mark(setting) {
  const value = valueOf(setting);
  const other = value !== null && value !== setting.dataset.default;
  setting.toggleAttribute("data-changed", other);
}

// --- finding ---

function filter() {
  const inputs = form.querySelector(".launch-inputs");
  const wanted = words(document.querySelector("[data-find-setting]")?.value ?? "");
  const filtering = wanted.length > 0 || onlyChanged;
  inputs.classList.toggle("filtering", filtering);
  let any = false;
  for (const setting of inputs.querySelectorAll("[data-setting]")) {
    const hit = filtering && has(setting, wanted) && (!onlyChanged || setting.hasAttribute("data-changed"));
    setting.toggleAttribute("data-hit", hit);
    any ||= hit;
  }
  for (const section of inputs.querySelectorAll("section")) {
    section.toggleAttribute("data-hit", section.querySelector("[data-hit]") !== null);
  }
  for (const fold of inputs.querySelectorAll("details.fold")) {
    const hit = filtering && fold.querySelector("[data-hit]") !== null;
    if (hit && !fold.open) {
      fold.open = true;
      fold.dataset.opened = "";
    } else if (!filtering && "opened" in fold.dataset) {
      fold.open = false;
      delete fold.dataset.opened;
    }
    fold.hidden = filtering && !hit;
  }
  const none = inputs.querySelector('[data-none-found="settings"]');
  none.hidden = !filtering || any;
  none.textContent = onlyChanged && !wanted.length ? "Every setting is at its default." : "No setting answers to these words.";
}

function find(field) {
  const list = document.getElementById(field.dataset.findIn);
  const wanted = words(field.value);
  let any = false;
  for (const choice of list.querySelectorAll("[data-words]")) {
    choice.hidden = !has(choice, wanted) && !choice.querySelector("input:checked");
    any ||= has(choice, wanted);
  }
  const none = document.querySelector(`[data-none-found="${field.dataset.findIn}"]`);
  if (none) none.hidden = any;
}

// --- preview ---

function ask() {
  clearTimeout(timer);
  timer = setTimeout(() => {
    keep();
    window.htmx.trigger("#launch-preview", "settings");
  }, ASK_MS);
}

function complain() {
  for (const slot of form.querySelectorAll("[data-errors]")) {
    if (slot.childElementCount) slot.replaceChildren();
  }
  for (const input of form.querySelectorAll("[aria-invalid]")) input.removeAttribute("aria-invalid");
  for (const item of form.querySelectorAll("[data-complaint]")) {
    const target = item.dataset.complaint;
    const line = document.createElement("div");
    line.className = "error";
    line.textContent = item.querySelector("span").textContent;
    form.querySelector(`[data-errors="${target}"]`)?.append(line);
    const input = document.getElementById(target);
    if (input?.matches("input, select")) input.setAttribute("aria-invalid", "true");
  }
}

document.body.addEventListener("htmx:afterSwap", (event) => {
  const id = event.detail.target.id;
  if (id !== "launch-parts" && id !== "launch-preview") return;
  form.querySelector("[data-only-changed]").checked = onlyChanged;
  complain();
  if (id !== "launch-parts") return;
  filter();
  keep();
});

// --- coming back ---

// What is typed is kept with the page's place in the history, and with it the id under which this form launches once: a
// browser that fetches the page anew when one comes back or reloads it would have lost both.
function keep() {
  const typed = new URLSearchParams(new FormData(form));
  typed.delete("csrfmiddlewaretoken");
  history.replaceState({ ...history.state, launch: typed.toString() }, "");
}

function restore(typed) {
  const values = new FormData();
  for (const [name, value] of new URLSearchParams(typed)) values.append(name, value);
  const parts = form.querySelector('[hx-post$="/launch/parts"]').getAttribute("hx-post");
  window.htmx.ajax("POST", parts, { values, target: "#launch-parts", swap: "outerHTML" });
}

if (history.state?.launch) restore(history.state.launch);
form.addEventListener("submit", keep);

// --- events ---

document.addEventListener("input", (event) => {
  const field = event.target;
  if (field.matches("[data-find-setting]")) return filter();
  if (field.matches("[data-find-in]")) {
    event.stopPropagation();
    return find(field);
  }
  if (field.matches("[data-only-changed]")) {
    onlyChanged = field.checked;
    return filter();
  }
  const setting = field.closest("[data-setting]");
  if (setting) mark(setting);
  if (form.contains(field) && !field.closest(".choices")) ask();
});

// A search field's own change must not reach the htmx trigger around it.
document.addEventListener("change", (event) => {
  if (event.target.matches("[data-find-in], [data-only-changed]")) event.stopPropagation();
}, true);

document.addEventListener("click", (event) => {
  const reset = event.target.closest("[data-reset]");
  if (!reset) return;
  const setting = reset.closest("[data-setting]");
  const box = setting.classList.contains("check") ? setting.querySelector("input[type=checkbox]") : null;
  if (box) box.checked = setting.dataset.default === "true";
  else setting.querySelector("input[type=text], select, textarea").value = setting.dataset.default;
  mark(setting);
  if (onlyChanged) filter();
  ask();
});

// Enter in a field must not launch by accident; Ctrl+Enter does.
form.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.target.matches("textarea, button, summary, a")) return;
  event.preventDefault();
  if (event.ctrlKey || event.metaKey) form.querySelector("[data-launch]").click();
});

const paste = document.getElementById("paste");
if (paste?.hasAttribute("data-open-now")) paste.showModal();
document.querySelector(".launch-refused[autofocus]")?.focus();
