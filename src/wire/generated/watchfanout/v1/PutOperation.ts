// Original file: proto/watchfanout/v1/write_service.proto

import type { Duration as _google_protobuf_Duration, Duration__Output as _google_protobuf_Duration__Output } from '../../google/protobuf/Duration.ts';
import type { Long } from '@grpc/proto-loader';

/**
 * Creates or replaces an object.
 */
export interface PutOperation {
  /**
   * The new value.
   */
  'value'?: (Buffer | Uint8Array | string);
  /**
   * An existing lease to attach the object to. 0: no lease. Not together with ttl.
   */
  'lease'?: (number | string | Long);
  /**
   * Attaches the object to a new lease of this length, rounded up to whole seconds. All objects of a transaction with the
   * same length share the lease.
   */
  'ttl'?: (_google_protobuf_Duration | null);
}

/**
 * Creates or replaces an object.
 */
export interface PutOperation__Output {
  /**
   * The new value.
   */
  'value': (Buffer);
  /**
   * An existing lease to attach the object to. 0: no lease. Not together with ttl.
   */
  'lease': (string);
  /**
   * Attaches the object to a new lease of this length, rounded up to whole seconds. All objects of a transaction with the
   * same length share the lease.
   */
  'ttl': (_google_protobuf_Duration__Output | null);
}
