// Runs before the first paint, so that a pinned theme never flashes. Kept out of the page because the policy forbids inline scripts.
(() => {
  let pinned = null;
  try {
    pinned = localStorage.getItem("theme");
  } catch {
    // Storage can be switched off; then the system's theme holds.
  }
  if (pinned === "light" || pinned === "dark") document.documentElement.dataset.theme = pinned;
})();
