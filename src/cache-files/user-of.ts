import { createHash, scrypt, X509Certificate } from "node:crypto";
import { promisify } from "node:util";

/** What a process presents to the source of its caches. The source decides by it which objects there are. */
export interface OwnCredentials {
  /** Of etcd. */
  readonly username?: string | undefined;
  /** A bearer token. */
  readonly token?: string | undefined;
  /** A client certificate in PEM. */
  readonly certificate?: Buffer | undefined;
}

/** The claims of a JSON Web Token, of which a renewed one of the same user has others. */
const claimsOfOneToken = new Set([
  ...["jti", "nonce", "sid", "session_state", "at_hash", "c_hash", "s_hash"],
  ...["uti", "aio", "rh"],
]);

const slowHash = promisify(
  (secret: string, salt: string, done: (error: Error | null, hash: Buffer) => void) =>
    scrypt(secret, salt, 16, done),
);

/**
 * Names the user with these credentials, the same for each renewal of them where that shows: by the names in a certificate,
 * and by the claims of a JSON Web Token that are texts or lists of texts, such as its groups. A token of another kind shows
 * nothing but itself, so another one is another user. Neither a token nor anything that it can be guessed from quickly is in
 * the name. `source`: the salt, the same for the same source. Never rejects.
 */
export async function userOf(
  { username, token, certificate }: OwnCredentials,
  source: string,
): Promise<string> {
  const parts = [
    username === undefined ? undefined : `name ${JSON.stringify(username)}`,
    token === undefined ? undefined : (ofJwt(token) ?? (await ofSecret(token, source))),
    certificate === undefined ? undefined : ofCertificate(certificate),
  ];
  return parts.filter((part) => part !== undefined).join(", ");
}

async function ofSecret(token: string, source: string): Promise<string> {
  return `token ${(await slowHash(token, source)).toString("hex")}`;
}

/** Undefined: it is no JSON Web Token. It is not verified: the source does that. */
function ofJwt(token: string): string | undefined {
  const [, payload, signature, more] = token.split(".");
  if (payload === undefined || signature === undefined || more !== undefined) return undefined;
  try {
    const claims: unknown = JSON.parse(Buffer.from(payload, "base64url").toString("utf8"));
    const all = Object.entries(typeof claims === "object" && claims !== null ? claims : {});
    const [, subject] = all.find(([name]) => name === "sub") ?? [];
    if (typeof subject !== "string") return undefined;
    const stable = all
      .filter(([name, value]) => !claimsOfOneToken.has(name) && isTextual(value))
      .sort(([one], [other]) => (one < other ? -1 : 1));
    return `subject ${JSON.stringify(subject)} with claims ${digest(JSON.stringify(stable))}`;
  } catch {
    return undefined;
  }
}

function isTextual(value: unknown): boolean {
  const all: readonly unknown[] = Array.isArray(value) ? value : [value];
  return all.every((each) => typeof each === "string");
}

function ofCertificate(pem: Buffer): string {
  try {
    const { subject, subjectAltName = "" } = new X509Certificate(pem);
    return `certificate ${digest(JSON.stringify([subject, subjectAltName]))}`;
  } catch {
    return `certificate ${digest(pem)}`;
  }
}

function digest(content: string | Buffer): string {
  return createHash("sha256").update(content).digest("hex").slice(0, 32);
}
