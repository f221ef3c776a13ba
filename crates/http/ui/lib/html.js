// Preact and htm, as every other module imports them. The only place that names the vendored file.

export {
  h,
  html,
  render,
  Component,
  createContext,
  useContext,
  useEffect,
  useErrorBoundary,
  useLayoutEffect,
  useMemo,
  useReducer,
  useRef,
  useState,
  useCallback,
} from '../vendor/htm-preact.js';
