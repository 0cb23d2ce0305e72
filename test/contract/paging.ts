import type { ListRequest } from "../../src/wire/generated/watchfanout/v1/ListRequest.ts";
import type { ListResponse__Output } from "../../src/wire/generated/watchfanout/v1/ListResponse.ts";
import type { TestClient } from "../server/test-client.ts";

/** All pages of a listing. `between` is called after each but the last. */
export async function pagesOf(
  client: TestClient,
  request: ListRequest,
  between: () => Promise<void> = async () => {},
): Promise<ListResponse__Output[]> {
  const pages: ListResponse__Output[] = [];
  for (let page_token = ""; ; ) {
    const page = await client.list({ ...request, page_token });
    pages.push(page);
    page_token = page.next_page_token;
    if (page_token === "") return pages;
    await between();
  }
}

export function keysOf({ items }: ListResponse__Output): string[] {
  return items.map(({ key }) => key);
}
