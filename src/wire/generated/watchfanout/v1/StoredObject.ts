// Original file: proto/watchfanout/v1/object.proto

import type { Long } from '@grpc/proto-loader';

/**
 * One object of the store at one revision.
 * 
 * A revision is etcd's store revision: every transaction that changes something increments it, and all
 * keys that the transaction changes have the new one.
 */
export interface StoredObject {
  /**
   * The key, relative to the resource's prefix, for example "ns-1/pod-7". Never empty.
   */
  'key'?: (string);
  /**
   * The value, exactly as it was written.
   */
  'value'?: (Buffer | Uint8Array | string);
  /**
   * The revision that created the key. It changes when a deleted key is created again.
   */
  'create_revision'?: (number | string | Long);
  /**
   * The revision that last changed the key. In a DELETED event: the revision of the deletion.
   */
  'mod_revision'?: (number | string | Long);
  /**
   * Number of writes of the key since it was created, from 1.
   */
  'version'?: (number | string | Long);
  /**
   * The lease that the key is attached to; 0: no lease. Has up to 63 bits.
   */
  'lease'?: (number | string | Long);
}

/**
 * One object of the store at one revision.
 * 
 * A revision is etcd's store revision: every transaction that changes something increments it, and all
 * keys that the transaction changes have the new one.
 */
export interface StoredObject__Output {
  /**
   * The key, relative to the resource's prefix, for example "ns-1/pod-7". Never empty.
   */
  'key': (string);
  /**
   * The value, exactly as it was written.
   */
  'value': (Buffer);
  /**
   * The revision that created the key. It changes when a deleted key is created again.
   */
  'create_revision': (string);
  /**
   * The revision that last changed the key. In a DELETED event: the revision of the deletion.
   */
  'mod_revision': (string);
  /**
   * Number of writes of the key since it was created, from 1.
   */
  'version': (string);
  /**
   * The lease that the key is attached to; 0: no lease. Has up to 63 bits.
   */
  'lease': (string);
}
