// The control of one input, chosen by its kind.

import { html } from '../../../lib/html.js';
import { BooleanControl, ChoiceControl, SecretControl, TextControl } from './simple.js';
import { FileControl } from './file.js';
import { JsonControl } from './json.js';
import { ListControl } from './list.js';
import { NumberControl } from './number.js';

/**
 * What every control gets. `value` is undefined while the input is unset; the control then shows the
 * default.
 * @typedef {object} ControlProps
 * @property {import('../fields.js').Field} field
 * @property {string} id of the element that the label names
 * @property {unknown} value
 * @property {(value: unknown) => void} onChange
 * @property {string} describedBy
 * @property {boolean} invalid
 * @property {string} [label] for controls without a label of their own
 */

/** @param {ControlProps} props */
export function Control(props) {
  switch (props.field.kind) {
    case 'integer':
    case 'number':
      return html`<${NumberControl} ...${props} />`;
    case 'boolean':
      return html`<${BooleanControl} ...${props} />`;
    case 'choice':
      return html`<${ChoiceControl} ...${props} />`;
    case 'secret':
      return html`<${SecretControl} ...${props} />`;
    case 'file':
      return html`<${FileControl} ...${props} />`;
    case 'list':
      return html`<${ListControl} ...${props} />`;
    case 'json':
      return html`<${JsonControl} ...${props} />`;
    default:
      return html`<${TextControl} ...${props} />`;
  }
}
