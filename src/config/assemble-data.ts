import type { Checks } from "./checks.ts";
import type { DataConfig } from "./config.ts";
import { dataOptionNames } from "./data-options.ts";
import type { OptionValues } from "./options.ts";

/** Value of --data of a store that keeps nothing. */
const inMemory = ":memory:";

/** Minimum size of the file, in bytes: its tables and indexes need some of it. */
const leastBytes = 2 ** 20;

/** The embedded store. Undefined: the service follows etcd or another watch-fanout. */
export function dataConfig(values: OptionValues, checks: Checks): DataConfig | undefined {
  const other = (["etcd", "upstream"] as const).find((name) => values[name].length > 0);
  if (other !== undefined) {
    const problem = `excludes ${checks.place(other)}: it is of the embedded store. Remove one of them.`;
    checks.refuseGiven(dataOptionNames, problem);
    return undefined;
  }
  const maxBytes = values["data-bytes"];
  if (maxBytes < leastBytes) {
    checks.refuse("data-bytes", `${maxBytes} bytes are too few. Give at least 1MiB.`);
  }
  const historyBytes = values["data-history-bytes"] ?? Math.ceil(maxBytes / 4);
  if (historyBytes > maxBytes) {
    const problem = `${historyBytes} bytes are more than --data-bytes, which is ${maxBytes}.`;
    checks.refuse("data-history-bytes", problem);
  }
  const path = values.data === inMemory ? undefined : values.data;
  if (path === undefined) {
    const ofFile = dataOptionNames.filter((name) => name !== "data");
    checks.refuseGiven(ofFile, "has no effect with --data :memory:. Give a file, or leave it out.");
  }
  return {
    ...{ path, historyBytes, maxBytes },
    sync: values["data-sync"],
    historyMs: values["data-history"],
  };
}
