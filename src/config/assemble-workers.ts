import { usableCores } from "../base/usable-cores.ts";
import type { Checks } from "./checks.ts";
import type { OptionName, OptionValues } from "./options.ts";

/** The limits that are divided between workers: each counts what it has itself. */
const dividedLimits = [
  "max-streams",
  "max-streams-per-identity",
  "max-connections",
  "max-connections-per-identity",
  "max-reads-in-flight",
  "max-writes-in-flight",
  "max-queued-requests-per-identity",
  "max-requests-per-identity",
  "max-watch-rate",
  "max-watch-rate-per-identity",
  "max-send-rate",
  "max-send-rate-per-identity",
] as const satisfies readonly OptionName[];

/** The number of workers, and checks that the other options allow for as many. */
export function workersConfig(values: OptionValues, checks: Checks): number {
  const workers = values.workers === "auto" ? usableCores() : values.workers;
  if (workers === 1) return 1;
  if (values["etcd-api"]) {
    checks.refuse(
      "workers",
      `excludes ${checks.place("etcd-api")}: the etcd API is served by one process. Serve it with another watch-fanout, or ` +
        "remove one of the two.",
    );
  }
  if (values["audit-log"] === "-") {
    checks.refuse(
      "audit-log",
      `standard output can't be shared by ${workers} workers, whose lines would mix. Give a file.`,
    );
  }
  for (const name of dividedLimits) {
    const limit = values[name] ?? 0;
    if (limit === 0 || limit >= workers) continue;
    checks.refuse(
      name,
      `${limit} can't be divided between ${workers} workers. Give at least ${workers}, or fewer --workers.`,
    );
  }
  return workers;
}
