import type { Meter } from "@opentelemetry/api";
import type { ReloadCounts, WatchedCertificate } from "../base/watched-files.ts";
import type { AuthenticationCounts } from "../identity/authenticators.ts";
import type { KeyRequestCounts } from "../identity/key-set.ts";

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
