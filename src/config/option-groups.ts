import { callerOptions } from "./caller-options.ts";
import { etcdOptions } from "./etcd-options.ts";
import { limitOptions } from "./limit-options.ts";
import { listenerOptions } from "./listener-options.ts";
import { type OptionName, optionNames } from "./options.ts";
import { telemetryOptions } from "./telemetry-options.ts";

const named: readonly (readonly [heading: string, names: readonly string[]])[] = [
  ["Ports and TLS", Object.keys(listenerOptions)],
  ["Callers and their rights", Object.keys(callerOptions)],
  ["etcd and its API", Object.keys(etcdOptions).filter((name) => name !== "etcd")],
  ["Caches", optionNames.filter((name) => /^(?:event-window|dispatch|consistency)-/.test(name))],
  ["Limits", Object.keys(limitOptions)],
  ["Log, metrics and traces", Object.keys(telemetryOptions)],
  [
    "Process",
    ["workers", "stall-timeout", "max-stream-age", "memory-ceiling", "framing", "shutdown-timeout"],
  ],
];

/** All options under headings, in the order in which help shows them. */
export const optionGroups: readonly {
  readonly heading: string;
  readonly names: readonly OptionName[];
}[] = [["What is served", optionNames.filter((name) => !isIn(named, name))] as const, ...named].map(
  ([heading, names]) => ({ heading, names: optionNames.filter((name) => names.includes(name)) }),
);

function isIn(groups: typeof named, name: string): boolean {
  return groups.some(([, names]) => names.includes(name));
}
