// The attributes that the elements of all controls share.

/**
 * The attributes that all elements of controls share.
 * @param {import('./control.js').ControlProps} props
 */
export function attributes({ id, field, value, describedBy, invalid, label }) {
  return {
    id,
    'aria-describedby': describedBy,
    'aria-invalid': invalid ? 'true' : null,
    'aria-required': field.required ? 'true' : null,
    'aria-label': label ?? null,
    class: value === undefined ? 'unset' : '',
  };
}
