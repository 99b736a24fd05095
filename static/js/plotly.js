// Loads plotly.js once, when the first chart comes into view, in a way that satisfies `style-src 'self'`.
//
//   import loadPlotly from this file, then
//   const Plotly = await loadPlotly();
//
// plotly.js writes its style rules into <style> elements, which the policy blocks. It leaves that out when it finds an element with
// the id of its style sheet and the class "no-inline-styles"; our rules for it stand in static/css/plotly.css. The map library
// inside it checks for an element with the second id. Both stand-ins are empty.
//
// What charts must not use: <b>, <i> and other tags in texts (they become style attributes, which are blocked; use font.weight and
// font.style), heat maps as images, and GL or map traces. `scatter` and `bar`, hover, annotations and shapes are free of violations.

const STYLE_ID = "plotly.js-style-global";
const MAP_STYLE_ID = "9f215cf04c5486422605d13261cb87401f4e7763b6296af81e98efbc0130da53";

let loading = null;

export function loadPlotly() {
  loading ??= new Promise((resolve, reject) => {
    for (const id of [STYLE_ID, MAP_STYLE_ID]) {
      const stand = document.createElement("meta");
      stand.id = id;
      stand.className = "no-inline-styles";
      document.head.append(stand);
    }
    const script = document.createElement("script");
    script.src = document.querySelector('meta[name="plotly"]').content;
    script.onload = () => resolve(window.Plotly);
    script.onerror = () => {
      loading = null;
      reject(new Error("The chart library did not load; reload the page."));
    };
    document.head.append(script);
  });
  return loading;
}
