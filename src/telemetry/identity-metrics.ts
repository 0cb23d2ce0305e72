import type { Meter } from "@opentelemetry/api";
import type { ReloadCounts, WatchedCertificate } from "../base/watched-files.ts";
import type { AuthenticationCounts } from "../identity/authenticators.ts";
import type { KeyRequestCounts } from "../identity/key-set.ts";
import { verbs } from "../policy/access.ts";
import type { Authorizer } from "../policy/authorizer.ts";

/** Registers how many calls were authenticated. */
export function registerAuthenticationMetrics(
  meter: Meter,
  { counts }: { readonly counts: AuthenticationCounts },
): void {
  meter
    .createObservableCounter("watch_fanout_authentications", {
      unit: "{call}",
      description:
        "Calls by the source of their identity: certificate, jwt, token, forwarded-certificate, none (anonymous), or " +
        "refused.",
    })
    .addCallback((result) => {
      for (const [source, count] of Object.entries(counts)) result.observe(count, { source });
    });
}

/** Registers how often the keys of the token issuer were requested. */
export function registerKeyRequests(
  meter: Meter,
  keys: { readonly counts: KeyRequestCounts },
): void {
  meter
    .createObservableCounter("watch_fanout_jwks_requests", {
      unit: "{request}",
      description: "Requests for the keys of the token issuer, by result: applied or refused.",
    })
    .addCallback((result) => {
      const { succeeded, failed } = keys.counts;
      result.observe(succeeded, { result: "applied" });
      result.observe(failed, { result: "refused" });
    });
}

/** Registers when the certificates in use expire. */
export function registerCertificateExpiry(
  meter: Meter,
  files: { certificates(): readonly WatchedCertificate[] },
): void {
  meter
    .createObservableGauge("watch_fanout_certificate_not_after_timestamp_seconds", {
      unit: "s",
      description:
        "When the first certificate of a file in use expires, in seconds since the epoch, by kind of file and path.",
    })
    .addCallback((observer) => {
      for (const { kind, file, notAfter } of files.certificates()) {
        observer.observe(notAfter / 1_000, { file: kind, path: file });
      }
    });
}

/** Registers how often files have changed while they were in use. */
export function registerFileReloads(
  meter: Meter,
  files: { counts(): readonly ReloadCounts[] },
): void {
  meter
    .createObservableCounter("watch_fanout_file_reloads", {
      unit: "{version}",
      description:
        "New versions of watched files, by kind of file and result: applied, or refused while the version before stays " +
        "in use.",
    })
    .addCallback((observer) => {
      for (const { kind, applied, refused } of files.counts()) {
        observer.observe(applied, { file: kind, result: "applied" });
        observer.observe(refused, { file: kind, result: "refused" });
      }
    });
}

/** What the metrics of an audit log read. */
interface AuditCounts {
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
