// Behaviour of every page: theme, keys, menus, dialogs, toasts, relative times. Everything is driven by data attributes:
//   data-key="g r"        pressing the keys clicks this element (data-key-label names it in the help)
//   data-search           "/" focuses this field
//   data-opens="id"       opens the <dialog> with this id; data-closes closes the one around it
//   data-submits          sends its form when it changes
//   data-theme-toggle     switches between light and dark
//   <time data-ago>       is kept current

const THIN = "\u202f";

// --- theme ---

function currentTheme() {
  const pinned = document.documentElement.dataset.theme;
  return pinned ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
}

function switchTheme() {
  const theme = currentTheme() === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = theme;
  try {
    localStorage.setItem("theme", theme);
  } catch {
    // Without storage the choice lasts for this page.
  }
  document.dispatchEvent(new CustomEvent("themechange", { detail: theme }));
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  if (!document.documentElement.dataset.theme) {
    document.dispatchEvent(new CustomEvent("themechange", { detail: currentTheme() }));
  }
});

// --- clicks ---

document.addEventListener("click", (event) => {
  const target = event.target instanceof Element ? event.target : null;
  if (!target) return;
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    if (!menu.contains(target)) menu.open = false;
  }
  if (target.closest("[data-theme-toggle]")) switchTheme();
  const opener = target.closest("[data-opens]");
  if (opener) openDialog(document.getElementById(opener.dataset.opens));
  if (target.closest("[data-closes]")) target.closest("dialog")?.close();
  // A click on the dialog element itself is one on its backdrop.
  if (target instanceof HTMLDialogElement) target.close();
  target.closest("[data-dismiss]")?.closest(".toast")?.remove();
});

// --- forms ---

// A form is sent once, however often its button is pressed. What is sent carries the token of now: after signing in in
// another tab the one on the page is old. A button with an address of its own may answer with a file: the page stays.
const RELEASE_MS = 15_000;

const token = () => document.cookie.match(/(?:^|; )unsqueeze_csrf=([^;]+)/)?.[1];

function release(form) {
  delete form.dataset.sent;
  for (const button of form.querySelectorAll("[aria-disabled]")) button.removeAttribute("aria-disabled");
}

document.addEventListener("change", (event) => {
  if (event.target.matches?.("[data-submits]")) event.target.form.requestSubmit();
});

document.addEventListener("submit", (event) => {
  const form = event.target;
  if (event.defaultPrevented || form.method !== "post") return;
  const field = form.querySelector("[name=csrfmiddlewaretoken]");
  if (field && token()) field.value = token();
  if (event.submitter?.hasAttribute("formaction")) return;
  if (form.dataset.sent) {
    event.preventDefault();
    return;
  }
  form.dataset.sent = "yes";
  event.submitter?.setAttribute("aria-disabled", "true");
  setTimeout(() => release(form), RELEASE_MS);
});
document.addEventListener("htmx:configRequest", (event) => {
  if (token()) event.detail.headers["X-CSRFToken"] = token();
});
// Back on a page that the browser kept.
addEventListener("pageshow", () => document.querySelectorAll("form[data-sent]").forEach(release));

function openDialog(dialog) {
  if (!(dialog instanceof HTMLDialogElement) || dialog.open) return;
  if (dialog.id === "keys") listKeys(dialog.querySelector(".keys"));
  dialog.showModal();
}

// --- keys ---

let prefix = "";
let prefixTimer = 0;

function typing(element) {
  return element instanceof HTMLElement && (element.isContentEditable || element.matches("input:not([type=checkbox], [type=radio]), textarea, select"));
}

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    for (const menu of document.querySelectorAll("details.menu[open]")) {
      menu.open = false;
      menu.querySelector("summary").focus();
    }
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
  if (document.querySelector("dialog[open]")) return;
  if (event.key === "/") {
    const field = document.querySelector("[data-search]");
    if (field) {
      event.preventDefault();
      field.focus();
      field.select?.();
    }
    return;
  }
  const pressed = prefix ? `${prefix} ${event.key}` : event.key;
  const bound = [...document.querySelectorAll("[data-key]")];
  const exact = bound.find((element) => element.dataset.key === pressed);
  clearTimeout(prefixTimer);
  prefix = "";
  if (exact) {
    event.preventDefault();
    exact.click();
  } else if (bound.some((element) => element.dataset.key.startsWith(`${pressed} `))) {
    prefix = pressed;
    prefixTimer = setTimeout(() => {
      prefix = "";
    }, 1200);
  }
});

function listKeys(list) {
  const rows = [...document.querySelectorAll("[data-key]")].map((element) => [
    element.dataset.key,
    element.dataset.keyLabel ?? element.textContent.trim(),
  ]);
  if (document.querySelector("[data-search]")) rows.unshift(["/", "Search"]);
  list.replaceChildren(
    ...rows.flatMap(([keys, label]) => {
      const term = document.createElement("dt");
      for (const [index, key] of keys.split(" ").entries()) {
        if (index) term.append(" ");
        const box = document.createElement("kbd");
        box.textContent = key;
        term.append(box);
      }
      const text = document.createElement("dd");
      text.textContent = label;
      return [term, text];
    }),
  );
}

// --- toasts ---

export function toast(text, tone = "info") {
  const template = document.getElementById("toast-template");
  const box = template.content.firstElementChild.cloneNode(true);
  box.dataset.tone = tone;
  box.querySelector("span").textContent = text;
  document.getElementById("toasts").append(box);
  if (tone !== "error") setTimeout(() => box.remove(), 6000);
}

// A response header `HX-Trigger: {"toast": {"text": "Stopping the run", "tone": "success"}}` shows one.
document.addEventListener("toast", (event) => toast(event.detail.text, event.detail.tone));
document.addEventListener("htmx:responseError", (event) => {
  const { status } = event.detail.xhr;
  const why = status === 403 ? "You are signed out, or may not do this: sign in in another tab and go on here." : `The server answered ${status}.`;
  toast(`${why} Nothing was changed on this page.`, "error");
});
document.addEventListener("htmx:sendError", () => toast("The server cannot be reached. Try again in a moment.", "error"));
for (const box of document.querySelectorAll("#toasts .toast:not([data-tone='error'])")) {
  setTimeout(() => box.remove(), 6000);
}

// --- relative times ---

export function relative(seconds) {
  const distance = Math.abs(seconds);
  if (distance < 5) return "now";
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const [unit, size] = units.find(([, length]) => distance >= length);
  const shown = `${Math.floor(distance / size)}${THIN}${unit}`;
  return seconds > 0 ? `${shown} ago` : `in ${shown}`;
}

setInterval(() => {
  for (const time of document.querySelectorAll("time[data-ago]")) {
    time.textContent = relative((Date.now() - Date.parse(time.dateTime)) / 1000);
  }
}, 10_000);

// --- bars that scroll sideways show where one is ---

for (const here of document.querySelectorAll("nav a[aria-current='page']")) {
  const bar = here.parentElement;
  const offset = here.getBoundingClientRect().left - bar.getBoundingClientRect().left;
  bar.scrollLeft += offset - (bar.clientWidth - here.offsetWidth) / 2;
}
