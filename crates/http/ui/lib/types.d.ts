// The documents of the server's `/ui/api/`, as the modules read them.

export interface Session {
  account: string;
  role: 'admin' | 'user';
  tokens: boolean;
  server: { command: 'serve' | 'platform' | 'api' | 'router'; version: string; epoch: string; started_at: string };
  apis: string[];
  files_origins?: string[];
  pages: string[];
}

export interface ModelState {
  health: string;
  detail: string | null;
  since: string | null;
}

export interface ModelSummary {
  kind: 'model' | 'trained' | 'endpoint' | 'routed';
  name: string;
  version: string | null;
  description: string | null;
  state: ModelState;
  chat: boolean;
  trainable: boolean;
}

export interface ModelSection extends ModelSummary {
  slots: number;
  slots_free: number;
  waiting: number;
  running: number;
}

export interface RunRequest {
  path: string;
  style: 'replicate' | 'runpod' | 'chat' | 'cog';
  /** What the body has besides the input. */
  fields?: { version?: string; destination?: string };
}

export interface ModelDetail extends ModelSummary {
  schema: any | null;
  example: Record<string, unknown> | null;
  run: RunRequest;
  versions: { version: string; health: string; runnable: boolean }[];
  setup: { status: string; logs: string | null; started_at: string | null; took_s: number | null } | null;
}

export type JobStatus = 'queued' | 'starting' | 'processing' | 'succeeded' | 'failed' | 'canceled' | 'aborted';

export interface Job {
  id: string;
  account: string;
  kind: string;
  api: string;
  model: string;
  version: string | null;
  status: JobStatus;
  created_at: string;
  started_at: string | null;
  completed_at: string | null;
  deadline: string | null;
  waited_s: number | null;
  loaded_s: number | null;
  ran_s: number | null;
  attempt: number;
  error: string | null;
  metrics: Record<string, unknown>;
  warnings: string[];
  data_removed: boolean;
  private?: boolean;
  endpoint?: string;
  worker?: string;
  input?: Record<string, unknown> | null;
  output?: unknown;
  output_is_list?: boolean;
  logs?: string;
}

export interface Attempt {
  number: number;
  started_at?: string;
  ended_at?: string;
  end?: 'succeeded' | 'failed' | 'canceled' | 'aborted' | 'lost' | 'released';
  /** The director or the worker that ran it. */
  runner?: string;
}

export interface Sections {
  overview?: any;
  history?: any;
  models?: ModelSection[];
  children?: any[];
  queues?: any[];
  endpoints?: any[];
  directors?: any[];
  replicas?: any[];
  router?: any;
  [name: string]: any;
}
