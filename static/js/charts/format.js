// Numbers as the pages write them (webapp/core/templatetags/figures.py): three significant digits, thin spaces, a true minus.

const THIN = "\u202f";
const MINUS = "\u2212";
const SUPERSCRIPT = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };

function grouped(number) {
  return String(Math.abs(number)).replace(/\B(?=(\d{3})+$)/g, THIN);
}

export function figure(value, digits = 3) {
  if (value === null || value === undefined) return "—";
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : `${MINUS}∞`;
  if (value === 0) return "0";
  const sign = value < 0 ? MINUS : "";
  const size = Math.abs(value);
  const [mantissa, power] = size.toExponential(digits - 1).split("e");
  const exponent = Number(power);
  if (exponent < -4 || exponent >= 9) {
    return `${sign}${mantissa}×10${[...String(exponent)].map((c) => SUPERSCRIPT[c]).join("")}`;
  }
  if (exponent >= digits - 1) return sign + grouped(Math.round(Number(`${mantissa}e${exponent}`)));
  return sign + size.toFixed(digits - 1 - exponent);
}

// A count or a place on an axis: whole numbers in full, others with four digits.
export function place(value) {
  if (value === null || value === undefined) return "—";
  if (Number.isInteger(value)) return (value < 0 ? MINUS : "") + grouped(value);
  return figure(value, 4);
}

export function nonfiniteText(kind) {
  return { nan: "NaN", inf: "∞", "-inf": `${MINUS}∞` }[kind] ?? kind;
}

// Plotly reads some tags and entities in texts; names are shown as they are.
export function plain(text) {
  return String(text ?? "").replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}
