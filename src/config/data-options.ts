import { durationOption, type OptionDefinition, sizeOption } from "./option-definition.ts";
import { choice, text } from "./value-types.ts";

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
