import type { Meter } from "@opentelemetry/api";
import { verbs } from "../policy/access.ts";
import type { Authorizer } from "../policy/authorizer.ts";

/** What the metrics of an audit log read. */
export interface AuditCounts {
  readonly lines: number;
  readonly dropped: number;
  readonly failures: number;
}

/** Registers what the policy has denied. */
export function registerPolicyMetrics(
  meter: Meter,
  authorizer: Pick<Authorizer, "denied" | "revoked">,
): void {
  meter
    .createObservableCounter("watch_fanout_denied_calls", {
      unit: "{call}",
      description: "Calls that the policy denied, by verb.",
    })
    .addCallback((result) => {
      for (const verb of verbs) result.observe(authorizer.denied[verb], { verb });
    });
  meter
    .createObservableCounter("watch_fanout_revoked_streams", {
      unit: "{stream}",
      description: "Streams that ended because a changed policy no longer allowed them.",
    })
    .addCallback((result) => result.observe(authorizer.revoked));
}

/** Registers what an audit log has written and dropped. */
export function registerAuditMetrics(meter: Meter, audit: AuditCounts): void {
  meter
    .createObservableCounter("watch_fanout_audit_lines", {
      unit: "{line}",
      description: "Lines of the audit log that were written, or wait in memory.",
    })
    .addCallback((result) => result.observe(audit.lines));
  meter
    .createObservableCounter("watch_fanout_audit_dropped_lines", {
      unit: "{line}",
      description:
        "Lines of the audit log that were dropped, since the file did not take them and too many waited.",
    })
    .addCallback((result) => result.observe(audit.dropped));
  meter
    .createObservableCounter("watch_fanout_audit_write_failures", {
      unit: "{attempt}",
      description:
        "Attempts to write to the audit log, or to open it again, that failed, such as on a full disk.",
    })
    .addCallback((result) => result.observe(audit.failures));
}
