// Numbers, durations and times as people read them.

export function usd(value) {
  if (value === null || value === undefined) return "–";
  const sign = value < 0 ? "−" : "";
  const size = Math.abs(value);
  if (size >= 1000) return `${sign}$${size.toLocaleString("en-US", { maximumFractionDigits: 2, minimumFractionDigits: 2 })}`;
  return `${sign}$${size.toFixed(4)}`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const sign = seconds < 0 ? "−" : "";
  const whole = Math.round(Math.abs(seconds));
  const [d, h, m, s] = [Math.floor(whole / 86400), Math.floor(whole / 3600) % 24, Math.floor(whole / 60) % 60, whole % 60];
  if (d) return `${sign}${d} d${h ? ` ${h} h` : ""}`;
  if (h) return `${sign}${h} h${m ? ` ${m} m` : ""}`;
  if (m) return `${sign}${m} m${s ? ` ${s} s` : ""}`;
  return `${sign}${s} s`;
}

const two = (value) => String(value).padStart(2, "0");

// Local time; the day is added where it is not the day of `reference`.
export function clock(epoch, reference, withSeconds = true) {
  if (epoch === null || epoch === undefined) return "–";
  const at = new Date(epoch * 1000);
  const time = `${two(at.getHours())}:${two(at.getMinutes())}${withSeconds ? `:${two(at.getSeconds())}` : ""}`;
  if (reference !== undefined && at.toDateString() === new Date(reference * 1000).toDateString()) return time;
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${time}`;
}

export const percent = (share) => `${Math.round(share * 100)} %`;

// Values of policies have no fixed unit: three significant digits, without losing whole ones.
export function value(number) {
  const size = Math.abs(number);
  const text = size !== 0 && (size < 0.001 || size >= 1e6) ? number.toExponential(2) : String(Number(number.toPrecision(size >= 1000 ? 6 : 3)));
  return text.replaceAll("-", "−");
}

export const words = (text) => text.replaceAll("_", " ");
export const market = (name) => ({ on_demand: "on demand", spot: "spot", owned: "owned" })[name] ?? name;
export const plural = (count, one, many = `${one}s`) => `${count.toLocaleString("en-US")} ${count === 1 ? one : many}`;
