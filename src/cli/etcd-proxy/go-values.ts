/** What Go reads as true. */
export const goTrue: ReadonlySet<string> = new Set(["true", "TRUE", "True", "t", "T", "1"]);

/** What Go reads as false. */
export const goFalse: ReadonlySet<string> = new Set(["false", "FALSE", "False", "f", "F", "0"]);

const unitsMs = { ns: 1e-6, us: 1e-3, µs: 1e-3, ms: 1, s: 1e3, m: 60e3, h: 3_600e3 };

const duration = /^([+-]?)((?:(?:\d+\.?\d*|\.\d+)(?:ns|us|µs|ms|s|m|h))+)$/;

/**
 * A duration as Go writes it, such as 30s or 1m30s, in milliseconds, rounded up. 0 for a negative one, since etcd uses only
 * those above 0. Undefined: it is not a duration.
 */
export function goDurationMs(text: string): number | undefined {
  if (/^[+-]?0$/.test(text)) return 0;
  const [, sign, amounts] = duration.exec(text) ?? [];
  if (amounts === undefined) return undefined;
  let ms = 0;
  for (const [, amount, unit] of amounts.matchAll(/([\d.]+)([a-zµ]+)/g)) {
    ms += Number(amount) * unitsMs[unit as keyof typeof unitsMs];
  }
  return sign === "-" ? 0 : Math.ceil(ms);
}
