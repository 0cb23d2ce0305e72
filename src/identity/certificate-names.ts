import type { X509Certificate } from "node:crypto";
import { isName } from "./identity.ts";

/** A part of a certificate that can name its holder. */
export type CertificateNameKind = "spiffe" | "dns" | "cn";

export const certificateNameKinds: readonly CertificateNameKind[] = ["spiffe", "dns", "cn"];

/**
 * The name of a certificate's holder: of the first of `kinds` that the certificate has. Undefined without any of them,
 * or if the name is ambiguous: more than one SPIFFE ID or common name.
 */
export function certificateName(
  certificate: X509Certificate,
  kinds: readonly CertificateNameKind[],
): string | undefined {
  const alternatives = alternativeNames(certificate.subjectAltName ?? "");
  for (const kind of kinds) {
    const names = namesOf(certificate, kind, alternatives);
    const [name] = names;
    if (name === undefined) continue;
    // Of several DNS names the first one counts, as any of them is the holder's.
    if (kind !== "dns" && names.length > 1) return undefined;
    // Authorities that check alternative names may let a client choose its common name.
    if (kind !== "spiffe" && /^spiffe:/i.test(name)) return undefined;
    return isName(name) ? name : undefined;
  }
  return undefined;
}

interface AlternativeName {
  readonly type: string;
  readonly value: string;
}

function namesOf(
  certificate: X509Certificate,
  kind: CertificateNameKind,
  alternatives: readonly AlternativeName[],
): readonly string[] {
  switch (kind) {
    case "spiffe":
      return alternatives.filter(isSpiffeId).map(({ value }) => value);
    case "dns":
      // A wildcard is a set of names, and a policy could take it for a pattern.
      return alternatives
        .filter(({ type, value }) => type === "DNS" && !value.includes("*"))
        .map(({ value }) => value);
    case "cn":
      return [certificate.toLegacyObject().subject.CN ?? []].flat();
  }
}

/** https://github.com/spiffe/spiffe/blob/main/standards/SPIFFE-ID.md */
const spiffeId = /^spiffe:\/\/[a-z0-9._-]{1,255}(?:\/(?!\.{1,2}(?:\/|$))[A-Za-z0-9._-]+)*$/;

function isSpiffeId({ type, value }: AlternativeName): boolean {
  return type === "URI" && spiffeId.test(value);
}

/** One entry of Node's text. A value with special characters is a JSON string. */
const entry = /([^:,]+):("(?:[^"\\]|\\.)*"|[^,"]*)(?:, |$)/y;

/** Parses Node's text of the alternative names, such as `URI:spiffe://a/b, DNS:a.example`. Empty if it is not understood. */
function alternativeNames(text: string): readonly AlternativeName[] {
  const names: AlternativeName[] = [];
  entry.lastIndex = 0;
  while (entry.lastIndex < text.length) {
    const [, type = "", value = ""] = entry.exec(text) ?? [];
    if (type === "") return [];
    names.push({ type, value: value.startsWith('"') ? unquoted(value) : value });
  }
  return names;
}

function unquoted(text: string): string {
  try {
    return String(JSON.parse(text));
  } catch {
    // Not a name, see `isName`.
    return "";
  }
}
