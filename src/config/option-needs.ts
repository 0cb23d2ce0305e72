import type { Checks } from "./checks.ts";
import { etcdOptions } from "./etcd-options.ts";
import { flagOf, type OptionName, type OptionValues } from "./options.ts";

const ofEtcdApi = ["advertise-client-url", "watch-progress-notify-interval"] as const;

/** What a relay has of its own, though it reaches etcd over other servers. */
const ofEveryTier: readonly OptionName[] = [
  ...(["etcd-username", "etcd-password", "etcd-password-file"] as const),
  ...(["etcd-keepalive-time", "etcd-keepalive-timeout", "etcd-keepalive-without-calls"] as const),
];

const ofConnections = (Object.keys(etcdOptions) as (keyof typeof etcdOptions)[]).filter(
  (name) => name.startsWith("etcd-") && name !== "etcd-api",
);

/** Options that have no effect without others, each with what it needs. Of an option only the first is reported. */
const needs: readonly (readonly [needed: readonly OptionName[], by: readonly OptionName[]])[] = [
  [["etcd"], ofConnections],
  [["etcd-username"], ["etcd-password", "etcd-password-file"]],
  [["etcd-api"], ofEtcdApi],
  [
    ["upstream"],
    ["upstream-tls-ca", "upstream-tls-cert", "upstream-tls-key", "upstream-token-file"],
  ],
  [["upstream-tls-ca"], ["upstream-tls-cert"]],
  [
    ["tls-cert", "tls-key"],
    ["tls-client-ca", "tls-min-version", "tls-max-version", "tls-cipher-suites"],
  ],
  [["jwt-issuer"], ["jwt-audience", "jwt-jwks", "jwt-groups-claim"]],
  [["audit-log"], ["audit-level"]],
  [["otlp-endpoint"], ["trace-ratio", "otlp-metrics-interval"]],
];

/** Refuses options that were given without those that they need. */
export function checkNeeds(values: OptionValues, checks: Checks): void {
  const refused = new Set<OptionName>();
  const isEtcdsRelay = values["etcd-api"] && values.upstream.length > 0;
  for (const [needed, by] of needs) {
    const missing = needed.filter((name) => isAbsent(values[name]));
    if (missing.length === 0) continue;
    for (const name of by) {
      if (refused.has(name) || !checks.given(name)) continue;
      if (isEtcdsRelay && missing.includes("etcd") && ofEveryTier.includes(name)) continue;
      refused.add(name);
      checks.refuse(name, `needs ${missing.map(flagOf).join(" and ")} as well.`);
    }
  }
}

function isAbsent(value: OptionValues[OptionName]): boolean {
  return value === undefined || value === false || (Array.isArray(value) && value.length === 0);
}
