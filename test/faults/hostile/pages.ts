import { Message } from "../../foreign/protobuf.ts";
import type { AttackSession, Attacks } from "./attack.ts";
import type { HostileConnection } from "./hostile-connection.ts";
import { listRequest, match, paths } from "./requests.ts";

export interface FirstPage {
  readonly list: { readonly resource: string; readonly prefix: string; readonly pageSize: number };
  readonly pageToken: string;
}

/** First pages of one object, by prefixes that no other client lists. */
export async function firstPages(
  session: AttackSession,
  connection: HostileConnection,
  count: number,
): Promise<FirstPage[]> {
  const { resource, key } = session.target.bulk;
  const pages: FirstPage[] = [];
  for (let i = 0; i < count; i++) {
    // Two objects at least have it in common.
    const list = { resource, prefix: key.slice(0, 2 + (i % 3)), pageSize: 1 + Math.floor(i / 3) };
    const request = listRequest({ ...list, match: match.any });
    const response = await session.orAborted(connection.unary(paths.list, request));
    if (response === undefined) continue;
    pages.push({ list, pageToken: new Message(response).text(3) });
    await session.pace();
  }
  return pages;
}

export async function askNext(
  session: AttackSession,
  connection: HostileConnection,
  { list, pageToken }: FirstPage,
): Promise<void> {
  const request = listRequest({ ...list, match: match.any, pageToken });
  await session.untilAll([connection.call(paths.list, request)?.drain().closed]);
}

/** Page tokens that are not used as they are meant to be. A page costs the client some bytes. */
export const pages: Attacks = {
  "page tokens replayed": {
    ...{ weight: 2, mayHold: 30 },
    run: async (session) => {
      const connection = session.connect();
      const [page] = await firstPages(session, connection, 1);
      if (page === undefined) return;
      const { list, pageToken } = page;
      const ends: (Promise<void> | undefined)[] = [];
      await session.times(1_000, 100, (i) => {
        const at = session.random.between(0, pageToken.length - 1);
        const forged = `${pageToken.slice(0, at)}A${pageToken.slice(at + 1)}`;
        // One in three is the token as it was, one has another character, one comes with another request.
        const request = {
          ...list,
          match: match.any,
          pageToken: i % 3 === 1 ? forged : pageToken,
          prefix: i % 3 === 2 ? `other-${i}` : list.prefix,
        };
        ends.push(connection.call(paths.list, listRequest(request))?.drain().closed);
      });
      await session.untilAll(ends);
    },
  },
};
