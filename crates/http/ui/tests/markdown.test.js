import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseMarkdown } from '../lib/markdown.js';

/** @param {any} node @returns {string} */
function show(node) {
  if (typeof node === 'string') return node;
  const attributes = Object.entries(node.props ?? {}).map(([name, value]) => ` ${name}=${value}`).join('');
  return `<${node.tag}${attributes}>${node.children.map(show).join('')}</${node.tag}>`;
}

/** @param {string} text */
function rendered(text) {
  return parseMarkdown(text).map(show).join('');
}

test('the usual blocks', () => {
  assert.equal(rendered('# A\ntext\nmore\n\n- one\n- two\n  - three\n\n2. x\n3. y\n\n> q\n\n---\n\n```js\na < b\n```'), [
    '<h3>A</h3>', '<p>text\nmore</p>', '<ul><li>one</li><li><p>two</p><ul><li>three</li></ul></li></ul>', '<ol start=2><li>x</li><li>y</li></ol>',
    '<blockquote><p>q</p></blockquote>', '<hr></hr>', '<pre><code>a < b</code></pre>',
  ].join(''));
});

test('tables', () => {
  assert.equal(rendered('| a | b |\n|---|---|\n| 1 | **2** |'), '<table><thead><tr><th>a</th><th>b</th></tr></thead><tbody><tr><td>1</td><td><strong>2</strong></td></tr></tbody></table>');
});

test('emphasis, code and escapes', () => {
  assert.equal(rendered('**b** *i* ~~s~~ `c*d*` snake_case_name \\*x\\*'), '<p><strong>b</strong> <em>i</em> <s>s</s> <code>c*d*</code> snake_case_name *x*</p>');
});

test('an unfinished code block, as while it streams', () => {
  assert.equal(rendered('```\na\nb'), '<pre><code>a\nb</code></pre>');
});

test('links lead to http and https only', () => {
  assert.match(rendered('[a](https://example.com/x)'), /<a href=https:\/\/example.com\/x target=_blank rel=noopener noreferrer nofollow>a<\/a>/);
  for (const target of ['javascript:alert(1)', 'JAVASCRIPT:alert(1)', 'data:text/html,x', 'vbscript:x', '//evil', '/admin', 'blob:x', 'https:evil']) {
    assert.doesNotMatch(rendered(`[a](${target})`), /<a /, target);
  }
});

test('raw HTML and images stay text', () => {
  assert.equal(rendered('<img src=x onerror=alert(1)><script>x</script>'), '<p><img src=x onerror=alert(1)><script>x</script></p>');
  assert.equal(parseMarkdown('<script>x</script>')[0].children[0], '<script>x</script>');
  assert.match(rendered('![a](https://evil/x.png)'), /^<p><a href=https:\/\/evil\/x.png [^>]*>a<\/a><\/p>$/);
});

test('hostile texts are parsed in time', () => {
  for (const text of ['*'.repeat(50_000), '`'.repeat(50_000), '['.repeat(50_000), '> '.repeat(20_000), '_a'.repeat(20_000), '**a'.repeat(20_000), '- '.repeat(10_000), '|'.repeat(50_000)]) {
    const start = performance.now();
    parseMarkdown(text);
    assert.ok(performance.now() - start < 2000, text.slice(0, 4));
  }
});

test('the marks that close a heading are removed', () => {
  assert.equal(rendered('## A b ##  '), '<h4>A b</h4>');
  assert.equal(rendered('#'), '<p>#</p>');
  assert.equal(rendered('# '), '<h3></h3>');
});

test('fences, and lines that only look like one', () => {
  assert.equal(rendered('~~~~ js x\na\n~~~~'), '<pre><code>a</code></pre>');
  assert.equal(rendered('``` a`b'), '<p>``` a`b</p>');
  assert.equal(rendered('``a``  `b``'), '<p><code>a</code>  `b``</p>');
});

test('a table has a rule with two columns', () => {
  for (const rule of ['--|--', '|:-:|-|', ' | --- | ---: | ']) assert.match(rendered(`a|b\n${rule}`), /^<table>/, rule);
  for (const rule of ['|---|', '--', '|--|x|', '|--||--|']) assert.doesNotMatch(rendered(`a|b\n${rule}`), /<table>/, rule);
});

test('texts that need backtracking are parsed in linear time', () => {
  const n = 300_000;
  const spaces = ' '.repeat(n);
  const texts = [
    `# ${spaces}\u2028x`, `# x${spaces}x`, `# ${'#'.repeat(n)}x`, `# ${'# '.repeat(n)}x`,
    `\`\`\`${'a'.repeat(n)}\``, `~~~${'~'.repeat(n)}a\``, `${'`'.repeat(n)}a\``,
    `a|b\n|${spaces}x`, `a|b\n${'-'.repeat(n)}x`, `a|b\n${'|-'.repeat(n)}x`,
    '`'.repeat(n), '`a``b'.repeat(n / 5), `${'`'.repeat(n)}a${'`'.repeat(n - 1)}`,
    `- ${spaces}x\u2028y`, `1. ${spaces}x\u2028y`, `> ${spaces}x\u2028y`, `-${spaces}x`, `${'- '.repeat(n)}x`, `***${spaces}x`,
    '[a]('.repeat(n / 4), '![a'.repeat(n / 3), '__a'.repeat(n / 3), '~~a'.repeat(n / 3),
  ];
  for (const text of texts) {
    const start = performance.now();
    parseMarkdown(text);
    assert.ok(performance.now() - start < 2000, `${JSON.stringify(text.slice(0, 8))} took ${performance.now() - start} ms`);
  }
});
