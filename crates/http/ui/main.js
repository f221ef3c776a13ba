document.getElementById('app').textContent = 'tidegate';
