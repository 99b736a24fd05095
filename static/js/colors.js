// Colours of the current theme for what is drawn by script: color("--series-0") -> "rgb(230, 159, 0)".
// Custom properties with light-dark() only resolve on a real element, hence the probe. `document` fires "themechange" when to ask again.

let probe = null;

export function color(name) {
  if (!probe) {
    probe = document.createElement("span");
    probe.hidden = true;
    document.body.append(probe);
  }
  probe.style.color = `var(${name})`;
  return getComputedStyle(probe).color;
}

// The colour of series number `index`; after eight, colours repeat with the next dash pattern.
export function series(index) {
  const dashes = ["solid", "dash", "dot", "dashdot"];
  return { color: color(`--series-${index % 8}`), dash: dashes[Math.floor(index / 8) % dashes.length] };
}
