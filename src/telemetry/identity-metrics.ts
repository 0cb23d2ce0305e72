import type { Meter } from "@opentelemetry/api";
import { by, byEach, counter, gauge, registerMetrics } from "../base/metric-table.ts";
import type { ReloadCounts, WatchedCertificate } from "../base/watched-files.ts";
import type { AuthenticationCounts } from "../identity/authenticators.ts";
import type { KeyRequestCounts } from "../identity/key-set.ts";
import { verbs } from "../policy/access.ts";
import type { Authorizer } from "../policy/authorizer.ts";

/** Registers how many calls were authenticated, and how often the keys of the token issuer were requested. */
export function registerIdentityMetrics(
  meter: Meter,
  authenticators: { readonly counts: AuthenticationCounts } | undefined,
  keys: { readonly counts: KeyRequestCounts } | undefined,
): void {
  if (authenticators !== undefined) {
    registerMetrics(meter, () => [[authenticators.counts]], {
      watch_fanout_authentications: counter(
        "{call}",
        "Calls by the source of their identity, none, or refused.",
        (counts) => by("source", { ...counts }),
      ),
    });
  }
  if (keys === undefined) return;
  registerMetrics(meter, () => [[keys.counts]], {
    watch_fanout_jwks_requests: counter(
      "{request}",
      "Requests for the keys of the token issuer: applied or refused.",
      ({ succeeded, failed }) => by("result", { applied: succeeded, refused: failed }),
    ),
  });
}

/** Registers when the certificates in use expire. */
export function registerCertificateExpiry(
  meter: Meter,
  files: { certificates(): readonly WatchedCertificate[] },
): void {
  registerMetrics(
    meter,
    () => files.certificates().map((each) => [each, { file: each.kind, path: each.file }]),
    {
      watch_fanout_certificate_not_after_timestamp_seconds: gauge(
        "s",
        "When the first certificate of a file in use expires.",
        ({ notAfter }) => notAfter / 1_000,
      ),
    },
  );
}

/** Registers how often files have changed while they were in use. */
export function registerFileReloads(
  meter: Meter,
  files: { counts(): readonly ReloadCounts[] },
): void {
  registerMetrics(meter, () => files.counts().map((each) => [each, { file: each.kind }]), {
    watch_fanout_file_reloads: counter(
      "{version}",
      "New versions of watched files: applied or refused.",
      ({ applied, refused }) => by("result", { applied, refused }),
    ),
  });
}

/** What the metrics of an audit log read. */
interface AuditCounts {
  readonly lines: number;
  readonly dropped: number;
  readonly failures: number;
}

/** Registers what the policy has denied, and what an audit log has written and dropped. */
export function registerRightsMetrics(
  meter: Meter,
  authorizer: Pick<Authorizer, "denied" | "revoked">,
  audit: AuditCounts | undefined,
): void {
  registerMetrics(meter, () => [[authorizer]], {
    watch_fanout_denied_calls: counter("{call}", "Calls that the policy denied.", ({ denied }) =>
      byEach("verb", verbs, (verb) => [verb, denied[verb]]),
    ),
    watch_fanout_revoked_streams: counter(
      "{stream}",
      "Streams that a changed policy ended.",
      ({ revoked }) => revoked,
    ),
  });
  if (audit === undefined) return;
  registerMetrics(meter, () => [[audit]], {
    watch_fanout_audit_lines: counter(
      "{line}",
      "Lines of the audit log, written or waiting.",
      ({ lines }) => lines,
    ),
    watch_fanout_audit_dropped_lines: counter(
      "{line}",
      "Lines of the audit log that were lost, since too many waited.",
      ({ dropped }) => dropped,
    ),
    watch_fanout_audit_write_failures: counter(
      "{attempt}",
      "Attempts to write to the audit log that failed.",
      ({ failures }) => failures,
    ),
  });
}
