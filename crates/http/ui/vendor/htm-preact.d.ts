// The types of the parts of Preact and htm that `htm-preact.js` exports.

export interface VNode {
  type: unknown;
  props: Record<string, unknown>;
  key: unknown;
}
export type Child = VNode | string | number | boolean | null | undefined | Child[];
export type FunctionComponent<P = any> = (props: P) => Child;
export interface Ref<T> {
  current: T;
}
export type Inputs = readonly unknown[];

export function h(type: string | FunctionComponent, props: object | null, ...children: Child[]): VNode;
export function html(strings: TemplateStringsArray, ...values: unknown[]): VNode;
export function render(tree: Child, parent: Element): void;
export class Component<P = any, S = any> {
  constructor(props: P);
  props: P;
  state: S;
  setState(state: Partial<S>): void;
  render(props: P, state: S): Child;
}
export interface Context<T> {
  Provider: FunctionComponent<{ value: T; children?: Child }>;
}
export function createContext<T>(value: T): Context<T>;
export function useState<T>(initial: T | (() => T)): [T, (next: T | ((previous: T) => T)) => void];
export function useState<T>(): [T | undefined, (next: T | undefined) => void];
export function useReducer<S, A>(reducer: (state: S, action: A) => S, initial: S): [S, (action: A) => void];
export function useEffect(effect: () => void | (() => void), inputs?: Inputs): void;
export function useLayoutEffect(effect: () => void | (() => void), inputs?: Inputs): void;
export function useRef<T>(initial: T): Ref<T>;
export function useImperativeHandle<T>(ref: Ref<T>, create: () => T, inputs?: Inputs): void;
export function useMemo<T>(factory: () => T, inputs: Inputs): T;
export function useCallback<T extends Function>(callback: T, inputs: Inputs): T;
export function useContext<T>(context: Context<T>): T;
export function useDebugValue<T>(value: T): void;
export function useErrorBoundary(callback?: (error: Error) => void): [Error | undefined, () => void];
