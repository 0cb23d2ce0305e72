import type { Checks } from "./checks.ts";
import type { DataConfig } from "./config.ts";
import { durationOption, type OptionDefinition, sizeOption } from "./option-definition.ts";
import type { OptionValues } from "./options.ts";
import { choice, text } from "./value-types.ts";

/** Value of --data of a store that keeps nothing. */
const inMemory = ":memory:";

/** Minimum size of the file, in bytes: its tables and indexes need some of it. */
const leastBytes = 2 ** 20;

/** The options of the embedded store. */
export const dataOptions = {
  data: {
    schema: text,
    value: "FILE|:memory:",
    help: "File of the embedded store; its folder is created if absent. :memory: keeps nothing when the process ends. One process at a time uses a file.",
    default: "watch-fanout.data/store.db",
  },
  "data-sync": {
    schema: choice(["full", "off"]),
    value: "MODE",
    help: "full: a write is acknowledged once it would survive a loss of power. off: once it would survive the end of the process.",
    default: "full",
  },
  "data-history": {
    ...durationOption("1s"),
    help: "How long the file keeps old revisions, which watches resume from and EXACT reads. The time between two processes does not count.",
    default: "24h",
  },
  "data-history-bytes": {
    ...sizeOption,
    help: "Maximum size of these old revisions in the file.",
    defaultHelp: "a quarter of --data-bytes",
  },
  "data-bytes": {
    ...sizeOption,
    help: "Maximum size of the file. Writes that need more end with STORAGE_FULL, once the history has been removed for them.",
    default: "8GiB",
  },
} as const satisfies Readonly<Record<string, OptionDefinition>>;

export const dataOptionNames = Object.keys(dataOptions) as (keyof typeof dataOptions)[];

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
