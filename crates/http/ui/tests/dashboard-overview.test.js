// The panels of the overview: slots, shares of accounts, order of models; messages and settings.

import assert from 'node:assert/strict';
import test from 'node:test';

import { findSettings } from '../dashboard/config/settings.js';
import { attemptCount, canReplay, lastResult } from '../dashboard/deliveries/delivery.js';
import { errorText, gpuTitle, memoryText, userLines } from '../dashboard/overview/gpus.js';
import { childState, failedFirst, healthSummary } from '../dashboard/overview/models.js';
import { shares } from '../dashboard/overview/queues.js';
import { processName, slotCounts, slotText } from '../dashboard/overview/slots.js';
import { errorTone } from '../dashboard/overview/tiles.js';

/** @param {Partial<import('../dashboard/deliveries/delivery.js').Delivery>} parts */
const message = (parts) => ({ id: 'm', job: 'j', event: 'completed', host: 'h', created_at: '', attempts: [], state: /** @type {const} */ ('delivered'), ...parts });

/** @param {Partial<import('../dashboard/overview/slots.js').Child>} parts */
const child = (parts) => ({ model: 'm', number: 0, state: 'ready', slots: 2, jobs: 0, restarts: 0, since: '', ...parts });

/**
 * @param {string} name
 * @param {string} health
 */
const model = (name, health) => /** @type {any} */ ({ name, state: { health, detail: null, since: null } });

test('a process that is replaced counts with the slots of its siblings', () => {
  const children = [child({}), child({ number: 1, state: 'starting', slots: 0, restarts: 3 })];
  const counts = slotCounts({ slots: 2, slots_free: 1 }, children);
  assert.deepEqual(counts, { idle: 1, busy: 1, restarting: 2 });
  assert.equal(slotText(counts), '1 of 2 busy, 2 restarting');
});

test('a process that starts for the first time does not restart', () => {
  const first = child({ state: 'starting', slots: 0 });
  assert.equal(slotCounts({ slots: 0, slots_free: 0 }, [first]).restarting, 0);
  assert.equal(childState(first), 'starting');
});

test('a process is idle, busy, restarting, or what the server says', () => {
  const states = [child({}), child({ jobs: 1 }), child({ state: 'starting', restarts: 1 }), child({ state: 'defunct' })].map(childState);
  assert.deepEqual(states, ['idle', 'busy', 'restarting', 'defunct']);
});

test('a spare has no number, no slots, and waits', () => {
  const spare = child({ spare: 'loaded', slots: 0 });
  assert.equal(processName(spare), 'spare (loaded)');
  assert.equal(processName(child({ number: 3 })), '#3');
  assert.equal(childState(spare), 'standby');
  const starting = child({ spare: 'imported', state: 'starting', slots: 0, restarts: 1 });
  assert.equal(slotCounts({ slots: 2, slots_free: 2 }, [child({}), starting]).restarting, 0);
  const onGpu = { model: 'local/a', number: 0, spare: 'loaded', pid: 7, memory_bytes: 2 ** 30 };
  assert.deepEqual(userLines(gpu({ children: [onGpu] })), ['local/a spare (loaded): 1 GiB']);
});

test('failed models are first; ready and busy ones keep their order', () => {
  const list = [model('c', 'BUSY'), model('b', 'READY'), model('z', 'SETUP_FAILED')];
  assert.deepEqual(failedFirst(list).map(({ name }) => name), ['z', 'b', 'c']);
  assert.equal(healthSummary(list), '1 busy, 1 ready, 1 setup failed');
});

test('an error rate warns from one percent', () => {
  assert.deepEqual([0, 0.009, 0.01, 0.05].map(errorTone), ['', '', 'warn', 'bad']);
});

test('shares are of all open jobs, largest first, without accounts that have none', () => {
  const list = shares([
    { waiting: 1, running: 0 },
    { account: 'ann', waiting: 2, running: 1 },
    { account: 'bob', waiting: 0, running: 0 },
  ]);
  assert.deepEqual(list, [
    { name: 'ann', waiting: 2, running: 1, share: 0.75 },
    { name: 'anonymous', waiting: 1, running: 0, share: 0.25 },
  ]);
});

test('only the last message of a job can be replayed, and not while it is sent', () => {
  assert.equal(canReplay(message({})), true);
  assert.equal(canReplay(message({ event: 'start' })), false);
  assert.equal(canReplay(message({ state: 'sending' })), false);
});

test('attempts of earlier servers count', () => {
  assert.equal(attemptCount(message({ earlier_attempts: 2, attempts: [{ at: '', took_s: 1, status: 500 }] })), 3);
});

test('the last result is why the message was given up, the status or the error', () => {
  assert.equal(lastResult(message({ given_up: 'status 410', attempts: [{ at: '', took_s: 1, status: 410 }] })), 'status 410');
  assert.equal(lastResult(message({ attempts: [{ at: '', took_s: 1, status: 500 }, { at: '', took_s: 1, error: 'refused' }] })), 'refused');
  assert.equal(lastResult(message({})), '–');
});

test('settings are found by flag, variable, value and origin', () => {
  const settings = [
    { name: 'port', flag: '--port', env: 'TIDEGATE_PORT', value: '5000', origin: 'default' },
    { name: 'max_body', flag: '--max-body', env: 'TIDEGATE_MAX_BODY', value: '64MiB', origin: 'environment' },
  ];
  const names = (/** @type {string} */ search, changed = false) => findSettings(settings, search, changed).map(({ name }) => name);
  assert.deepEqual(names(''), ['port', 'max_body']);
  assert.deepEqual(names('--max ENVIR'), ['max_body']);
  assert.deepEqual(names('5000'), ['port']);
  assert.deepEqual(names('', true), ['max_body']);
});

/** @param {Partial<import('../dashboard/overview/gpus.js').Gpu>} parts */
const gpu = (parts) => ({ id: '0', index: 0, kind: 'card', uuid: 'GPU-0', name: 'H200', memory_total_bytes: 2 ** 31, memory_used_bytes: 2 ** 30, utilization_percent: 5, temperature_celsius: 40, xid_errors: 0, last_xid: null, cordoned_by_xid: null, children: [], other_processes: null, other_memory_bytes: null, ...parts });

test('a GPU lists what uses it, and what is unknown', () => {
  const children = [
    { model: 'local/a', number: 0, pid: 7, memory_bytes: 2 ** 30 },
    { model: 'local/b', number: 1, pid: 8, memory_bytes: null },
  ];
  assert.deepEqual(userLines(gpu({ children, other_processes: 1, other_memory_bytes: 2 ** 20 })), ['local/a #0: 1 GiB', 'local/b #1: unknown', '1 other process: 1 MiB']);
  assert.deepEqual(userLines(gpu({})), []);
});

test('the memory and the title of a GPU', () => {
  assert.equal(memoryText(gpu({})), '1 GiB of 2 GiB');
  assert.equal(memoryText(gpu({ memory_used_bytes: null })), 'unknown');
  assert.deepEqual(['card', 'divided', 'mig'].map((kind) => gpuTitle(gpu({ kind }))), ['GPU 0', 'GPU 0, divided by MIG', 'MIG device of GPU 0']);
});

test('the errors of a GPU, and that it is cordoned', () => {
  assert.equal(errorText(gpu({})), 'none');
  assert.equal(errorText(gpu({ xid_errors: 2, last_xid: 13 })), '2, the last is Xid 13');
  assert.equal(errorText(gpu({ xid_errors: 1, last_xid: 79, cordoned_by_xid: 79 })), 'cordoned by Xid 79; errors: 1, the last is Xid 79');
});
