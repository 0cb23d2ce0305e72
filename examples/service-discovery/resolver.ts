/**
 * A resolver for grpc-js: channels to `watchfanout:///NAMESPACE/NAME` connect to the addresses in the object of that
 * key in `endpoints`, and follow its changes. While the service is unavailable they keep their addresses. grpc-js
 * calls the interface experimental; this is for version 1.14.
 */
import { experimental, status } from "@grpc/grpc-js";
import { type Client, type Interruption, jsonValues } from "watch-fanout/client";
import { z } from "zod";

const Endpoints = z.object({ addresses: z.array(z.string()) });

/** Registers `watchfanout:///KEY` for channels of this process. Close the client after these channels. */
export function registerWatchFanoutResolver(client: Client, resource: string = "endpoints"): void {
  const endpoints = client.resource(resource, jsonValues(Endpoints.parse), {
    onUndecodable: (failure) => process.emitWarning(failure),
  });

  const onInterruption = ({ error }: Interruption) => process.emitWarning(error.message);

  class EndpointsResolver implements experimental.Resolver {
    readonly #key: string;
    readonly #listener: experimental.ResolverListener;
    #following: AbortController | undefined;

    static getDefaultAuthority(target: experimental.GrpcUri): string {
      return nameOf(target.path);
    }

    constructor(target: experimental.GrpcUri, listener: experimental.ResolverListener) {
      this.#key = target.path;
      this.#listener = listener;
    }

    /** Starts to follow the endpoints. While it runs, asking again would not give newer addresses. */
    updateResolution(): void {
      if (this.#following !== undefined) return;
      this.#following = new AbortController();
      void this.#follow(this.#following.signal);
    }

    /** Also called when a channel becomes idle; it asks again when it is used. */
    destroy(): void {
      this.#following?.abort();
      this.#following = undefined;
    }

    async #follow(signal: AbortSignal): Promise<void> {
      try {
        for await (const object of endpoints.follow(this.#key, { signal, onInterruption })) {
          if (!signal.aborted) this.#tell(object?.value.addresses ?? []);
        }
      } catch (error) {
        if (signal.aborted) return;
        // Only another key, another client or more permissions can help. grpc-js may ask again after that.
        this.#following = undefined;
        this.#fail(error instanceof Error ? error.message : String(error));
      }
    }

    #tell(addresses: readonly string[]): void {
      const list = addresses.flatMap(addressOf).map((address) => ({ addresses: [address] }));
      this.#listener(experimental.statusOrFromValue(list), {}, null, "");
      if (list.length > 0) return;
      // With an empty list alone, calls would wait for their deadline; with an error they fail, unless they wait for
      // ready.
      this.#fail(`No addresses in ${resource} ${JSON.stringify(this.#key)}.`);
    }

    #fail(details: string): void {
      const none = experimental.statusOrFromError<experimental.Endpoint[]>({
        code: status.UNAVAILABLE,
        details,
      });
      this.#listener(none, {}, null, "");
    }
  }

  experimental.registerResolver("watchfanout", EndpointsResolver);
}

/** The part of the key after its namespace. */
function nameOf(key: string): string {
  return key.slice(key.indexOf("/") + 1);
}

/** Skips an address that is not HOST:PORT, with a warning: the other addresses are valid. */
function addressOf(text: string): { host: string; port: number }[] {
  const { host, port } = experimental.splitHostPort(text) ?? {};
  if (host !== undefined && port !== undefined) return [{ host, port }];
  process.emitWarning(`${JSON.stringify(text)} is not HOST:PORT.`);
  return [];
}
