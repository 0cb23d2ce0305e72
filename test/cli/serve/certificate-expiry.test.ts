import { pino } from "pino";
import { describe, expect, onTestFinished, test } from "vitest";
import { fileAuthorities, fileCertificate } from "../../../src/base/certificate-store.ts";
import type { WatchedCertificate } from "../../../src/base/watched-files.ts";
import { certificateChecks, watchExpiry } from "../../../src/cli/serve/certificates.ts";
import { FakeClock } from "../../fake-clock.ts";
import { Authority } from "../../identity/authority.ts";
import { Tier, temporaryFiles } from "../../relay/tiers.ts";

const day = 86_400_000;
const start = Date.UTC(2026, 0, 1);
const authority = await Authority.create("CN=First");

function certificate(kind: string, days: number, notBefore: number = 0): WatchedCertificate {
  const [file, subject] = [`/tls/${kind}`, `CN=${kind}`];
  return { kind, file, subject, notBefore, notAfter: start + days * day };
}

/** What is logged of these certificates. `pass` lets days pass, an hour at a time. */
function watched(certificates: WatchedCertificate[]) {
  const clock = new FakeClock();
  const lines: Record<string, unknown>[] = [];
  const logger = pino({}, { write: (line) => void lines.push(JSON.parse(line)) });
  const now = clock.now();
  const timeOfDay = (): number => start + clock.now() - now;
  const stop = watchExpiry({ certificates: () => certificates }, clock, logger, timeOfDay);
  onTestFinished(stop);
  const pass = (days: number): void => {
    for (let hour = 0; hour < 24 * days; hour++) clock.advance(day / 24);
  };
  /** The kinds and texts since the last call. */
  const logged = (): unknown[] => lines.splice(0).map(({ kind, msg }) => `${kind}: ${msg}`);
  return { lines, pass, logged };
}

describe("A certificate is logged", () => {
  test("at start if it has expired, is not valid yet, or expires within 14 days, with its dates", () => {
    const { lines } = watched([
      certificate("expired", -1),
      certificate("early", 90, start + day),
      certificate("soon", 13),
      certificate("good", 15),
    ]);
    expect(lines).toMatchObject([
      {
        ...{ level: 50, msg: "a certificate has expired", kind: "expired", file: "/tls/expired" },
        ...{ subject: "CN=expired", notAfter: "2025-12-31T00:00:00Z" },
      },
      { level: 50, msg: "a certificate is not valid yet", notBefore: "2026-01-02T00:00:00Z" },
      { level: 40, msg: "a certificate expires soon", notAfter: "2026-01-14T00:00:00Z" },
    ]);
  });

  test("once a day until it is replaced, and when it has expired", () => {
    const certificates = [certificate("server", 16)];
    const { pass, logged } = watched(certificates);
    pass(2);
    expect(logged()).toEqual([]);
    pass(3);
    expect(logged()).toEqual(Array(3).fill("server: a certificate expires soon"));
    pass(11);
    expect(logged().at(-1)).toBe("server: a certificate has expired");
    certificates[0] = certificate("server", 90);
    pass(2);
    expect(logged()).toEqual([]);
    // A new version that is bad as well is another certificate: it is logged within an hour.
    certificates[0] = certificate("server", 20);
    pass(1 / 24);
    expect(logged()).toEqual(["server: a certificate expires soon"]);
  });
});

test("The certificate of a file that expires first counts, of a chain or of several authorities", async () => {
  const notAfter = new Date(Math.floor(Date.now() / 1_000) * 1_000 + day);
  const intermediate = await authority.intermediate("CN=Below", { notAfter });
  const issued = await intermediate.issue({ notAfter: new Date(notAfter.getTime() + day) });
  const chain = Buffer.concat([issued.cert, intermediate.cert]);
  expect(fileCertificate("chain.pem", chain)).toMatchObject([
    { file: "chain.pem", subject: "CN=Below", notAfter: notAfter.getTime() },
  ]);
  expect(fileCertificate("key.pem", issued.key)).toEqual([]);
});

test("Authorities of a file that have expired do not count, unless all have", async () => {
  const second = Math.floor(Date.now() / 1_000) * 1_000;
  const expiring = async (name: string, days: number): Promise<Buffer> =>
    (await authority.intermediate(name, { notAfter: new Date(second + days * day) })).cert;
  const bundle = Buffer.concat([
    await expiring("CN=Old", 1),
    await expiring("CN=Next", 2),
    await expiring("CN=New", 90),
  ]);
  const first = (days: number): unknown =>
    fileAuthorities("ca.pem", bundle, second + days * day)[0]?.subject;
  expect([0, 1.5, 3, 100].map(first)).toEqual(["CN=Old", "CN=Next", "CN=New", "CN=Old"]);
});

test("An expired certificate is shown by /readyz, and does not make the process unready", () => {
  const [expired, good] = certificateChecks(
    [certificate("server-certificate", -1), certificate("client-ca", 90)],
    start,
  );
  expect(expired).toMatchObject({
    name: "certificate/server-certificate",
    failure: undefined,
    warning: "a certificate has expired",
    note: expect.stringContaining("to 2025-12-31T00:00:00Z"),
  });
  expect(good).toMatchObject({ failure: undefined, warning: undefined });
});

test("A service shows the certificates that it uses in /readyz, its metrics and its status, and logs an expired one", async () => {
  const notAfter = new Date(Math.floor(Date.now() / 1_000) * 1_000 - 60_000);
  const expired = await authority.issue({ notAfter });
  const files = temporaryFiles({
    ...{ cert: String(expired.cert), key: String(expired.key), ca: String(authority.cert) },
  });
  const lines: Record<string, unknown>[] = [];
  const logger = pino({}, { write: (line) => void lines.push(JSON.parse(line)) });
  const tls = { "tls-cert": files.cert, "tls-key": files.key, "tls-client-ca": files.ca };
  const tier = await Tier.start(tls, logger);
  onTestFinished(() => tier.stop());
  expect(lines).toContainEqual(
    expect.objectContaining({ msg: "a certificate has expired", file: files.cert }),
  );
  const readyz = await tier.readyz();
  expect(readyz).toMatch(/^ok\n/);
  expect(readyz).toContain(
    `certificate/server-certificate: a certificate has expired (${files.cert}`,
  );
  // The authorities of tests are valid for an hour.
  expect(readyz).toContain(`certificate/client-ca: a certificate expires soon (${files.ca}`);
  expect((await tier.metrics()).split("\n")).toContain(
    `watch_fanout_certificate_not_after_timestamp_seconds{file="server-certificate",path="${files.cert}"} ${notAfter.getTime() / 1_000}`,
  );
  const status = await fetch(`http://127.0.0.1:${tier.service.admin.port}/status.json`);
  const { certificates } = (await status.json()) as { certificates: unknown };
  expect(certificates).toMatchObject([
    { kind: "server-certificate", file: files.cert, notAfter: notAfter.toISOString() },
    { kind: "client-ca", file: files.ca, subject: "CN=First" },
  ]);
});
