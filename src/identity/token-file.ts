import { createHash, createHmac, randomBytes } from "node:crypto";
import { ownText } from "../base/text-memory.ts";
import { type Identity, isName } from "./identity.ts";

/** Maximum size of a token file, in bytes: some 10,000 tokens. */
export const maxTokenFileBytes = 1024 ** 2;

/** One line of a token file. */
export interface TokenLine {
  /** SHA-256 of the token, in lower-case hexadecimal. */
  readonly digest: string;
  readonly identity: Identity;
}

/** A token file has problems, each with the number of its line and without its content, which may be a secret. */
export class TokenFileError extends Error {
  override readonly name = "TokenFileError";
  readonly problems: readonly { readonly line: number; readonly problem: string }[];

  constructor(problems: TokenFileError["problems"]) {
    super(problems.map(({ line, problem }) => `line ${line}: ${problem}`).join(" "));
    this.problems = problems;
  }
}

const expected =
  "expected sha256:HEX NAME[,GROUP...], where `watch-fanout token hash` prints the first part.";

/**
 * Parses a token file: `sha256:HEX NAME[,GROUP...]` a line. Empty lines and lines that begin with # are skipped. Throws a
 * TokenFileError with all problems.
 */
export function parseTokenFile(content: Uint8Array): readonly TokenLine[] {
  const problems: { line: number; problem: string }[] = [];
  if (content.byteLength > maxTokenFileBytes) {
    const problem = `the file has more than ${maxTokenFileBytes} bytes, the maximum.`;
    throw new TokenFileError([{ line: 1, problem }]);
  }
  const lines: TokenLine[] = [];
  const numbers = new Map<string, number>();
  const texts = Buffer.from(content).toString("utf8").split(/\r?\n/);
  for (const [index, text] of texts.entries()) {
    const line = index + 1;
    if (/^\s*(?:#|$)/.test(text)) continue;
    const [, hex, names = ""] = /^\s*sha256:([0-9a-fA-F]{64})\s+(\S+)\s*$/.exec(text) ?? [];
    const [name, ...groups] = names.split(",");
    if (hex === undefined) {
      problems.push({ line, problem: expected });
    } else if (!isName(name) || !groups.every(isName)) {
      const problem = "the name or a group is empty, reserved (anonymous) or too long.";
      problems.push({ line, problem });
    } else {
      const digest = hex.toLowerCase();
      const before = numbers.get(digest);
      if (before === undefined) {
        const identity: Identity = {
          ...{ name: ownText(name), groups: groups.map(ownText) },
          ...{ source: "token", expiresAt: undefined },
        };
        numbers.set(digest, line);
        lines.push({ digest, identity });
      } else {
        problems.push({
          line,
          problem: `has the digest of line ${before}; one token has one name.`,
        });
      }
    }
  }
  if (problems.length > 0) throw new TokenFileError(problems.slice(0, 20));
  return lines;
}

/** SHA-256 of a token, in lower-case hexadecimal. */
export function tokenDigest(token: string): string {
  return createHash("sha256").update(token).digest("hex");
}

/** The tokens of a token file. */
export class StaticTokens {
  /** Random, so that the time of a lookup says nothing about the digests in the file. */
  readonly #key = randomBytes(32);
  readonly #onRevoked: (identity: Identity) => void;
  /** By an HMAC of the digest. */
  #identities: ReadonlyMap<string, Identity> = new Map();

  /** `onRevoked` is called with each identity whose token is no longer in the file, or has another name or groups. */
  constructor(lines: readonly TokenLine[], onRevoked: (identity: Identity) => void) {
    this.#onRevoked = onRevoked;
    this.replace(lines);
  }

  /** The identity of a token; undefined if the token is not in the file. One object as long as its line is the same. */
  find(token: string): Identity | undefined {
    return this.#identities.get(this.#blinded(tokenDigest(token)));
  }

  /** Replaces all tokens. */
  replace(lines: readonly TokenLine[]): void {
    const before = this.#identities;
    const identities = new Map<string, Identity>();
    for (const { digest, identity } of lines) {
      const name = this.#blinded(digest);
      const known = before.get(name);
      identities.set(name, known !== undefined && isSame(known, identity) ? known : identity);
    }
    this.#identities = identities;
    for (const [name, identity] of before) {
      if (identities.get(name) !== identity) this.#onRevoked(identity);
    }
  }

  #blinded(digest: string): string {
    return createHmac("sha256", this.#key).update(digest).digest("base64");
  }
}

function isSame(one: Identity, other: Identity): boolean {
  return one.name === other.name && one.groups.join() === other.groups.join();
}
