// The output of a run, shown by its kind: text, files, a gallery, a record or JSON.

import { html, useState } from '../../lib/html.js';
import { rootUrl } from '../../lib/root.js';
import { useSession } from '../../lib/session.js';
import { Markdown } from '../../lib/markdown.js';
import { CopyButton } from '../../components/copy_button.js';
import { JsonTree } from '../../components/json_tree.js';
import { StreamText } from '../../components/stream_text.js';
import { FileView } from './file_view.js';
import { fileOf, isConcatenated, isFileSchema, outputKind } from './kinds.js';

/** @typedef {import('../run_view.js').RunView} RunView */

/**
 * @param {{run: RunView, schema: any}} props `schema` is the whole OpenAPI document, or null
 */
export function OutputView({ run, schema }) {
  const session = useSession();
  const places = [rootUrl.href, ...(session.files_origins ?? [])];
  const type = schema?.components?.schemas?.Output;
  // A text that grows is shown without joining it again for each frame.
  if (isConcatenated(type) && run.parts.length > 0 && run.parts.every((part) => typeof part === 'string')) {
    return html`<${TextOutput} text=${run.text} generation=${run.generation} ended=${run.ended} />`;
  }
  return html`<${Value} value=${run.output} type=${type} places=${places} run=${run} />`;
}

/**
 * @param {{value: any, type: any, places: string[], run: RunView}} props
 */
function Value({ value, type, places, run }) {
  switch (outputKind(value, type, places)) {
    case 'nothing':
      return null;
    case 'text':
      return html`<${TextOutput} text=${Array.isArray(value) ? value.join('') : String(value)} generation=${run.generation} ended=${run.ended} />`;
    case 'file':
      return html`<${FileView} file=${fileOf(value, { isFile: isFileSchema(type), places })} />`;
    case 'files':
      return html`<div class="gallery">${value.map((/** @type {string} */ entry, /** @type {number} */ index) => html`<${FileView} key=${index} file=${fileOf(entry, { isFile: isFileSchema(type?.items), places })} label=${String(index + 1)} />`)}</div>`;
    case 'items':
      return html`<${Items} values=${value} type=${type?.items} places=${places} />`;
    case 'record':
      return html`<${RecordView} value=${value} type=${type} places=${places} />`;
    default:
      return html`<div class="json-tree"><${JsonTree} value=${value} /></div>`;
  }
}

/**
 * @param {{text: string, generation: number, ended: boolean}} props
 */
function TextOutput({ text, generation, ended }) {
  const [rendered, setRendered] = useState(false);
  // Markdown is rendered from the whole text, which is too much work for each frame of a stream.
  const asMarkdown = rendered && ended;
  return html`<div class="text-output">
    ${asMarkdown ? html`<${Markdown} text=${text} />` : html`<${StreamText} text=${text} generation=${generation} label="Output" class="text-box" />`}
    <div class="text-tools">
      <label class="check small"><input type="checkbox" checked=${rendered} onChange=${() => setRendered(!rendered)} /> Markdown</label>
      <${CopyButton} text=${text} label="Copy output" />
    </div>
  </div>`;
}

const FIRST_ITEMS = 200;

/**
 * @param {{values: string[], type: any, places: string[]}} props
 */
function Items({ values, type, places }) {
  const [shown, setShown] = useState(FIRST_ITEMS);
  return html`<ol class="items">
    ${values.slice(0, shown).map((value, index) => {
      const file = fileOf(value, { isFile: isFileSchema(type), places });
      return html`<li key=${index}>${file === null ? html`<span class="item-text">${value}</span>` : html`<${FileView} file=${file} />`}</li>`;
    })}
  </ol>
  ${values.length > shown ? html`<button type="button" class="button small" onClick=${() => setShown(shown * 4)}>Show more of ${values.length}</button>` : null}`;
}

/**
 * @param {{value: Record<string, unknown>, type: any, places: string[]}} props
 */
function RecordView({ value, type, places }) {
  return html`<dl class="record">
    ${Object.entries(value).map(([name, entry]) => {
      const file = fileOf(entry, { isFile: isFileSchema(type?.properties?.[name]), places });
      return html`<div key=${name}><dt>${name}</dt><dd>${file === null ? html`<${JsonTree} value=${entry} />` : html`<${FileView} file=${file} label=${name} />`}</dd></div>`;
    })}
  </dl>`;
}
