import { inspect } from "node:util";

/** An invalid value for a message: cut to 200 characters, without the password of a URL. */
export function showValue(value: unknown): string {
  const text =
    typeof value === "string"
      ? JSON.stringify(value.length > 200 ? `${value.slice(0, 200)}…` : value)
      : inspect(value, { depth: 2, breakLength: Number.POSITIVE_INFINITY, maxArrayLength: 10 });
  return text.replace(/\/\/[^/@\s]*@/g, "//(hidden)@");
}
